"""The system call that a thread of a process is inside of, and what its arguments point at.

Source: proc(5), "/proc/pid/syscall"; Linux's tables of system calls of x86-64 and arm64. It takes the rights of a
debugger.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from pathlib import Path

CALLS = {
    "x86_64": {
        0: "read", 1: "write", 2: "open", 7: "poll", 17: "read", 18: "write", 19: "read", 20: "write", 42: "accept",
        43: "accept", 44: "write", 45: "read", 46: "write", 47: "read", 61: "wait4", 72: "fcntl", 73: "flock",
        74: "write", 75: "write", 202: "futex", 232: "epoll", 247: "waitid", 257: "openat", 271: "poll", 281: "epoll",
        288: "accept",
    },
    "aarch64": {
        22: "epoll", 25: "fcntl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "read", 66: "write",
        67: "read", 68: "write", 73: "poll", 82: "write", 83: "write", 95: "waitid", 98: "futex", 202: "accept",
        203: "accept", 206: "write", 207: "read", 211: "write", 212: "read", 242: "accept", 260: "wait4",
    },
}  # fmt: skip
"""By machine and number what a call does: all that receive from a descriptor ``read``, fsync and all that send
``write``, connect and accept ``accept``."""
MOST = 16  # descriptors of a poll that are looked at


def under_way(pid: int, thread: int = 0) -> tuple[str, int, int] | None:
    """Return what the call does, one of the words of ``CALLS``, and its first two arguments; None where it runs.

    It is that of the process's main thread, unless another ``thread`` of it is named by its number.

    Raises:
        OSError: the process is gone, or its memory is not ours to read.
    """
    words = Path(f"/proc/{pid}/task/{thread or pid}/syscall").read_text().split()
    if words[0] in {"running", "-1"}:
        return None
    name = CALLS.get(platform.machine(), {}).get(int(words[0]))
    return (name, int(words[1], 16), int(words[2], 16)) if name else None


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
