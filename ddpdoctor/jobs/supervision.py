"""The ranks of a job while they run: waited for, asked for their stacks, ended with all that they have started."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.stack import ask_main_thread, read_stack
from ddpdoctor.jobs.outcome import Died, Outcome, Returned, Stuck
from ddpdoctor.jobs.rank import DUMP_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.jobs.job import Job


TICK = 0.02  # seconds between two looks at ranks that tell nothing
GRACE = 2.0  # seconds that the other ranks get once one has failed
DYING = 0.01  # seconds that killed processes get before those still there are looked for
OUTPUT = 20_000  # characters kept of each rank's output
FLOOD = 16 * 2**20  # bytes of output after which a rank's file is emptied, lest it fill the disk


def supervise(job: Job, pids: dict[int, int], directory: Path, client: Connection, told: int) -> dict[int, Outcome]:
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


def end(pids: Iterable[int]) -> None:
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


def with_output(outcome: Outcome, directory: Path) -> Outcome:
    """Return the outcome with the end of what its rank printed."""
    try:
        with (directory / f"{outcome.rank}.out").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - OUTPUT))
            text = file.read().decode(errors="replace")
    except OSError:
        text = ""
    return replace(outcome, output=text)
