"""The system call that a thread of a process is inside of, and what its arguments point at.

Source: proc(5), "/proc/pid/syscall"; Linux's tables of system calls of x86-64 and arm64. It takes the rights of a
debugger.
"""

from __future__ import annotations

import platform
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ddpdoctor.host.process.threads import thread_folders

CALLS = {
    "x86_64": {
        0: "read", 1: "write", 2: "open", 7: "poll", 17: "read", 18: "write", 19: "read", 20: "write", 23: "select",
        34: "signal", 35: "sleep", 42: "accept", 43: "accept", 44: "write", 45: "read", 46: "write", 47: "read",
        56: "start", 58: "start", 61: "wait4", 72: "fcntl",
        73: "flock", 74: "write", 75: "write", 128: "signal", 130: "signal", 202: "futex",
        230: "sleep_on", 232: "epoll", 247: "waitid", 257: "openat", 270: "pselect", 271: "poll", 281: "epoll",
        288: "accept", 435: "start",
    },
    "aarch64": {
        22: "epoll", 25: "fcntl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "read", 66: "write",
        67: "read", 68: "write", 72: "pselect", 73: "poll", 82: "write", 83: "write", 95: "waitid", 98: "futex",
        101: "sleep", 115: "sleep_on", 133: "signal",
        137: "signal", 202: "accept", 203: "accept", 206: "write", 207: "read", 211: "write",
        212: "read", 220: "start", 242: "accept", 260: "wait4", 435: "start",
    },
}  # fmt: skip
"""By machine and number what a call does: all that receive from a descriptor ``read``, fsync and all that send
``write``, connect and accept ``accept``."""
MOST = 16  # descriptors of a poll that are looked at
UNTIL = 1  # TIMER_ABSTIME: what is told is when the sleep ends, not how long it is
TIME = struct.Struct("=qq")  # timespec: seconds and nanoseconds
PARTS = {"select": 1e6, "pselect": 1e9}  # of a second, in which its time-out is told
SOON = 300.0  # seconds that a script sleeps, at the most, before it asks again
PRIVATE = 128  # FUTEX_PRIVATE_FLAG: no other process can wake what waits


def asleep(pid: int, thread: int = 0) -> float | None:
    """Return for how many seconds a process's main thread sleeps yet, at the most; None where it is in no sleep.

    Another ``thread`` of it is named by its number. Sleeps are ``nanosleep``, ``clock_nanosleep``, and
    ``select`` and ``pselect6`` of nothing, which time.sleep() is before Python 3.11.
    """
    with suppress(OSError, ValueError, IndexError, struct.error):
        name, arguments = _call(pid, thread or pid)
        if name == "sleep":
            return _seconds(pid, arguments[0])
        if name == "sleep_on":
            now = time.clock_gettime(arguments[0]) if arguments[1] & UNTIL else 0.0
            return max(0.0, _seconds(pid, arguments[2]) - now)
        if name.endswith("select") and arguments[0] == 0 and arguments[4]:
            return _seconds(pid, arguments[4], PARTS[name])
    return None


def sleeps(pid: int, thread: int = 0) -> bool:
    """Whether a process's main thread is in a sleep that ends soon: it looks then for what it waits for."""
    left = asleep(pid, thread)
    return left is not None and left < SOON


def waits_for_its_own(pid: int) -> bool:
    """Whether what wakes the main thread can only be a thread of the same process."""
    with suppress(OSError, ValueError, IndexError):
        name, arguments = _call(pid, pid)
        return name == "futex" and bool(arguments[1] & PRIVATE)
    return False


def waits_without_end(pid: int) -> bool:
    """Whether what wakes the main thread can only be a thread of the same process, and no time-out ends its wait."""
    with suppress(OSError, ValueError, IndexError):
        name, arguments = _call(pid, pid)
        return name == "futex" and bool(arguments[1] & PRIVATE) and not arguments[3]
    return False


def waits_for_other_processes(pid: int) -> bool:
    """Whether what wakes the main thread can be a thread of another process, and no time-out ends its wait."""
    with suppress(OSError, ValueError, IndexError):
        name, arguments = _call(pid, pid)
        return name == "futex" and not arguments[1] & PRIVATE and not arguments[3]
    return False


def waits_for_nobody(pid: int) -> bool:
    """Whether a process waits without end for a thread of its own, and has no other thread."""
    return waits_without_end(pid) and len(thread_folders(pid)) == 1


def _seconds(pid: int, address: int, parts: float = 1e9) -> float:
    whole, rest = TIME.unpack(_memory(pid, address, TIME.size))
    return float(whole + rest / parts)


def _call(pid: int, thread: int) -> tuple[str, list[int]]:
    """Return what a call does and its arguments; no name where it is none of those, or the thread runs."""
    words = Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split()
    if words[0] in {"running", "-1"}:
        return "", []
    return CALLS.get(platform.machine(), {}).get(int(words[0]), ""), [int(each, 16) for each in words[1:7]]


def under_way(pid: int, thread: int = 0) -> tuple[str, int, int] | None:
    """Return what the call does, one of the words of ``CALLS``, and its first two arguments; None where it runs.

    It is that of the process's main thread, unless another ``thread`` of it is named by its number.

    Raises:
        OSError: the process is gone, or its memory is not ours to read.
    """
    name, arguments = _call(pid, thread or pid)
    return (name, arguments[0], arguments[1]) if name else None


def of_epoll(pid: int, descriptor: int) -> Iterator[int]:
    """Yield the descriptors that an epoll descriptor waits for."""
    for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().splitlines():
        if line.startswith("tfd:"):
            yield int(line.split()[1])


def of_poll(pid: int, address: int, count: int) -> Iterator[int]:
    """Yield the descriptors of poll's array of ``count`` entries at an address."""
    if 0 < count <= MOST:
        for descriptor, _, _ in struct.iter_unpack("=ihh", _memory(pid, address, 8 * count)):
            if descriptor >= 0:
                yield descriptor


def _memory(pid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def text_at(pid: int, address: int) -> str:
    """Return the string of C at an address."""
    page = 4096
    return _memory(pid, address, page - address % page).partition(b"\0")[0].decode(errors="replace")
