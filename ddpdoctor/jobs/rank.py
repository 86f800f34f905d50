"""The life of one rank: a process forked from the server, from its first instruction to its outcome."""

from __future__ import annotations

import ctypes
import datetime as dt
import importlib
import io
import os
import pickle
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.files.journal import FILES
from ddpdoctor.host.stack import Frame, dump_on
from ddpdoctor.jobs.outcome import Outcome, Raised, Returned

if TYPE_CHECKING:
    from ddpdoctor.jobs.job import Job

# A real-time signal where there is one: training code uses SIGUSR1 and SIGUSR2 for its own ends.
DUMP_SIGNAL = signal.SIGRTMAX if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> None:
    """Set a process option of Linux; does nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end_with_parent() -> None:
    """Have a command, right before it begins, be told to end when this process is killed and can tell it nothing."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def be_a_rank(job: Job, rank: int, directory: Path, server: int, tells: int) -> None:
    """Run the job's function or script as ``rank`` and write the outcome, and a byte to ``tells``; never returns."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it died between the fork and the prctl
        os._exit(1)
    _redirect(directory / f"{rank}.out")
    for name, value in job.environ.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.environ[FILES] = str(directory)
    _draw_anew()
    dump_on(DUMP_SIGNAL, directory / f"{rank}.stack")
    try:
        write(directory / f"{rank}.outcome", _outcome(job, rank, directory))
        with suppress(OSError):  # a script can close what it did not open
            os.write(tells, b".")
    except SystemExit as exc:
        _report_exit(exc)
    finally:
        # A peer could still be reading from this rank's sockets: it stays until the server has all outcomes.
        # No teardown of the interpreter either: with torch 2.13, freeing a DDP object after the last
        # reference to its gloo group waits for a thread that waits for the GIL.
        while True:
            signal.pause()


def _draw_anew() -> None:
    """Seed the generators as those of a process of its own are; Python's random does so by itself after a fork."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()


def write(path: Path, outcome: Outcome) -> None:
    """Write the outcome so that a reader sees all of it or nothing."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(outcome))
    partial.rename(path)


def _redirect(path: Path) -> None:
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), line_buffering=True, write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), line_buffering=True, write_through=True)


def _outcome(job: Job, rank: int, directory: Path) -> Outcome:
    try:
        value = _call(job, rank, directory)
        pickle.dumps(value)
    except SystemExit:
        raise
    except BaseException as exc:  # noqa: BLE001 - whatever it is, it is this rank's outcome
        frames = traceback.extract_tb(exc.__traceback__)
        return Raised(
            rank,
            "",
            type(exc).__name__,
            str(exc),
            "".join(traceback.format_exception(exc)),
            tuple(Frame(frame.filename, frame.lineno or 0, frame.name) for frame in frames),
        )
    return Returned(rank, "", value)


def _call(job: Job, rank: int, directory: Path) -> Any:
    if job.payload is None:
        sys.argv = [str(Path(job.argv[0]).absolute()), *job.argv[1:]]
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        os.chdir(directory)  # what a script writes goes with the job
        with _around(job), _without_exit_0():
            runpy.run_path(sys.argv[0], run_name="__main__")
        return None
    function, args = pickle.loads(job.payload)  # noqa: S301 - made by this tool's own client
    if job.backend is not None:
        _join(job, rank, directory)
    return function(*args)


def _around(job: Job) -> AbstractContextManager[object]:
    if not job.around:
        return nullcontext()
    module, _, name = job.around.partition(":")
    manager: AbstractContextManager[object] = getattr(importlib.import_module(module), name)()
    return manager


@contextmanager
def _without_exit_0() -> Iterator[None]:
    """End a script that exits with status 0 as one that comes to its last line."""
    try:
        yield
    except SystemExit as exc:
        if exc.code not in (None, 0):
            raise


def _join(job: Job, rank: int, directory: Path) -> None:
    import torch
    import torch.distributed as dist

    dist.set_debug_level_from_env()  # type: ignore[attr-defined]  # torch exports it, but not to type checkers
    if job.backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        job.backend,
        store=dist.FileStore(str(directory / "store"), job.ranks),  # type: ignore[attr-defined]  # as above
        rank=rank,
        world_size=job.ranks,
        timeout=dt.timedelta(seconds=job.deadline + 60),
    )


def _report_exit(exc: SystemExit) -> None:
    """End as the interpreter would: the server reports the exit status."""
    if exc.code is not None and not isinstance(exc.code, int):
        print(exc.code, file=sys.stderr)  # noqa: T201 - what the interpreter does with a text
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(exc.code & 0xFF if isinstance(exc.code, int) else int(exc.code is not None))
