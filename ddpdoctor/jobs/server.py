"""The fork server: imports torch once, then runs each job in freshly forked ranks and supervises them.

It computes nothing, starts no thread and never touches CUDA, so that forking stays safe. It handles one job
at a time and ends, with everything it started, when its client does.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
import traceback
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.files.journal import undo
from ddpdoctor.jobs.forking import in_large_pages, uncollected
from ddpdoctor.jobs.job import Job, Ready, Twin
from ddpdoctor.jobs.rank import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, be_a_rank, prctl
from ddpdoctor.jobs.store import host_store, torchrun_environ
from ddpdoctor.jobs.supervision import end, supervise, with_output

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from ddpdoctor.jobs.outcome import Outcome


def main(descriptor: int, home: Path) -> None:
    """Serve jobs over the connection until it closes; then remove ``home``, the folder of the jobs' files.

    A server that is asked for twins runs no jobs itself: what its jobs leave could not be told from its twins.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a rank started and left comes to this process, to be ended
    connection = Connection(descriptor)
    try:
        with _ending_with_client(home), uncollected():
            _import_torch()
        in_large_pages()
    except BaseException:  # noqa: BLE001 - the client reports it, whatever it is
        connection.send(Ready(traceback.format_exc()))
        os._exit(0)
    try:
        connection.send(Ready())
        while True:
            asked: Job | Twin = connection.recv()
            if isinstance(asked, Job):
                connection.send(_run(asked, Path(tempfile.mkdtemp(dir=home)), connection))
            elif (twins := _in_twin(connection, asked.modules)) is not None:
                connection, home = twins, Path(asked.home)
                connection.send(Ready())
    except (EOFError, OSError):
        pass
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os._exit(0)  # taking torch apart would cost a third of a second


def _import(modules: tuple[str, ...]) -> None:
    if not sys.modules.keys() >= set(modules):
        with uncollected():
            for module in modules:
                importlib.import_module(module)


def _in_twin(connection: Connection, modules: tuple[str, ...]) -> Connection | None:
    """Fork a twin of this server; return its connection in the twin, None here."""
    _import(modules)
    descriptor = recv_handle(connection)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # twins end with their clients, and nobody waits for them
    if os.fork():
        os.close(descriptor)
        return None
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    connection.close()
    return Connection(descriptor)


@contextmanager
def _ending_with_client(home: Path) -> Iterator[None]:
    """End at once if the client dies meanwhile: nobody reads the connection, which tells it later."""

    def end(_: int, __: FrameType | None) -> None:
        shutil.rmtree(home, ignore_errors=True)
        os._exit(0)

    before = signal.signal(signal.SIGTERM, end)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    yield
    prctl(PR_SET_PDEATHSIG, 0)
    signal.signal(signal.SIGTERM, before)


def _import_torch() -> None:
    import torch
    import torch._dynamo  # imported by the first DistributedDataParallel(), where each rank would pay for it
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data  # noqa: F401 - as all of these: for the ranks


def _run(job: Job, directory: Path, connection: Connection) -> list[Outcome]:
    _import(job.modules)
    told, tells = os.pipe()
    pids: dict[int, int] = {}
    try:
        environ = dict(job.environ)
        if job.payload is None:
            keeper, port = host_store()
            pids[-1] = keeper
            environ.update(torchrun_environ(job.ranks, port))
        for rank in range(job.ranks):
            if job.payload is None:
                environ.update(RANK=str(rank), LOCAL_RANK=str(rank), ROLE_RANK=str(rank))
            ranked = replace(job, environ=environ)
            pids[rank] = _fork(ranked, rank, directory, tells)
        ended = supervise(job, {rank: pid for rank, pid in pids.items() if rank >= 0}, directory, connection, told)
    finally:
        end(pids.values())
        undo(directory, keep_new=True)
        os.close(told)
        os.close(tells)
    outcomes = [with_output(ended[rank], directory) for rank in range(job.ranks)]
    shutil.rmtree(directory, ignore_errors=True)
    return outcomes


def _fork(job: Job, rank: int, directory: Path, tells: int) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            be_a_rank(job, rank, directory, server, tells)
        finally:
            os._exit(70)
    return pid
