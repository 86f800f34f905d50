"""The fork server: imports torch once, then runs each job in freshly forked ranks and supervises them.

It computes nothing, starts no thread and never touches CUDA, so that forking stays safe. It handles one job
at a time and ends, with everything it started, when its client does.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.stack import ask_main_thread, read_stack
from ddpdoctor.jobs.forking import in_large_pages, uncollected
from ddpdoctor.jobs.job import Job, Ready, Twin
from ddpdoctor.jobs.outcome import Died, Outcome, Returned, Stuck
from ddpdoctor.jobs.rank import DUMP_SIGNAL, PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, be_a_rank, prctl
from ddpdoctor.jobs.store import host_store, torchrun_environ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

TICK = 0.02  # seconds between two looks at ranks that tell nothing
GRACE = 2.0  # seconds that the other ranks get once one has failed
DYING = 0.01  # seconds that killed processes get before those still there are looked for
OUTPUT = 20_000  # characters kept of each rank's output
FLOOD = 16 * 2**20  # bytes of output after which a rank's file is emptied, lest it fill the disk


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
        ended = _supervise(job, {rank: pid for rank, pid in pids.items() if rank >= 0}, directory, connection, told)
    finally:
        _end(pids.values())
        os.close(told)
        os.close(tells)
    outcomes = [_with_output(ended[rank], directory) for rank in range(job.ranks)]
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


def _supervise(job: Job, pids: dict[int, int], directory: Path, client: Connection, told: int) -> dict[int, Outcome]:
    """Wait until each rank has an outcome; the ranks that outlive the deadline are stuck.

    A rank that has an outcome writes a byte to the pipe ``told``; one that has died cannot.

    Raises:
        EOFError: the client is gone.
    """
    ended: dict[int, Outcome] = {}
    until = time.monotonic() + job.deadline
    while len(ended) < len(pids) and time.monotonic() < until:
        ready, _, _ = select.select([client.fileno(), told], [], [], TICK)
        if client.fileno() in ready:
            raise EOFError
        if told in ready:
            os.read(told, len(pids))
        for rank, pid in pids.items():
            if rank not in ended and (outcome := _look(rank, pid, directory)) is not None:
                ended[rank] = outcome
                if not isinstance(outcome, Returned):
                    until = min(until, time.monotonic() + GRACE)
    late = {rank: pid for rank, pid in pids.items() if rank not in ended}
    return ended | _stacks(late, directory)


def _look(rank: int, pid: int, directory: Path) -> Outcome | None:
    path = directory / f"{rank}.outcome"
    if path.exists():
        outcome: Outcome = pickle.loads(path.read_bytes())  # noqa: S301 - written by a rank of this server
        return outcome
    output = directory / f"{rank}.out"
    if output.exists() and output.stat().st_size > FLOOD:
        os.truncate(output, 0)
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        return None
    code = os.waitstatus_to_exitcode(status)
    return Died(rank, "", -code if code < 0 else None, code if code >= 0 else None)


def _stacks(pids: dict[int, int], directory: Path) -> dict[int, Outcome]:
    for pid in pids.values():
        ask_main_thread(pid, DUMP_SIGNAL)
    until = time.monotonic() + 0.5
    dumps = dict.fromkeys(pids, "")
    while any(not read_stack(dump) for dump in dumps.values()) and time.monotonic() < until:
        time.sleep(0.02)
        for rank in pids:
            with suppress(OSError):
                dumps[rank] = (directory / f"{rank}.stack").read_text(errors="replace")
    return {rank: Stuck(rank, "", read_stack(dump)) for rank, dump in dumps.items()}


def _end(pids: Iterable[int]) -> None:
    """Kill the ranks, their process groups, and whatever they started and left."""
    ranks = set()
    for pid in pids:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
                ranks.add(pid)
    until, pause = time.monotonic() + 2, 0.001
    while time.monotonic() < until:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        ranks.discard(ended)
        if ended == 0:
            time.sleep(pause)
            if not ranks and pause > DYING:  # what is still there, a rank has left to this process
                _kill_descendants()
            pause = pause if ranks else 2 * pause


def _kill_descendants() -> None:
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()


def _with_output(outcome: Outcome, directory: Path) -> Outcome:
    try:
        with (directory / f"{outcome.rank}.out").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - OUTPUT))
            text = file.read().decode(errors="replace")
    except OSError:
        text = ""
    return replace(outcome, output=text)
