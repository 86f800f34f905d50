"""What a process that rests waits for, as the kernel tells it: the system call that its main thread is inside of.

Source: proc(5), "/proc/pid/syscall" and "/proc/locks"; Linux's tables of system calls of x86-64 and arm64. It takes the
rights of a debugger; where these are missing, and on other systems, nothing is known.
"""

from __future__ import annotations

import os
import platform
import shlex
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame

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
LOCKS_AND_WAITS = {7, 38}  # F_SETLKW, F_OFD_SETLKW
MODE = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
READS, WRITES = (os.O_RDONLY, os.O_RDWR), (os.O_WRONLY, os.O_RDWR)
MOST = 16  # descriptors of a poll that are looked at
LONGEST = 80  # characters of a command
DEBUGGERS = ("/pdb.py", "/bdb.py", "/IPython/terminal/debugger.py", "/ipdb/__main__.py", "/pudb/debugger.py")


class Awaited(NamedTuple):
    """``what`` completes "it waits for"; ``mend`` and ``command`` are what to do about it.

    ``process`` is whom it waits for, 0 where nobody is known. ``thread``: a lock, a queue or a thread of its own, of
    which the kernel knows no more.
    """

    what: str
    mend: str = ""
    command: str = ""
    process: int = 0
    thread: bool = False


def awaited(pid: int, frames: Sequence[Frame] = (), store: int = 0) -> Awaited | None:
    """Return what a process waits for; None where it does not wait, or nothing is known.

    ``frames`` are those of its stack, as far as they are known; ``store`` is the port of the ranks' store.
    """
    if any(frame.file.endswith(DEBUGGERS) for frame in frames):
        return Awaited(
            "a command at the prompt of a debugger",
            "take the breakpoint out: what is typed does not reach one rank of several",
        )
    with suppress(OSError, ValueError, IndexError, struct.error):
        return _of(pid, store)
    return None


def _of(pid: int, store: int) -> Awaited | None:
    words = Path(f"/proc/{pid}/syscall").read_text().split()
    if words[0] in {"running", "-1"}:
        return None
    first, second = int(words[1], 16), int(words[2], 16)
    told: dict[str, Callable[[], Awaited | None]] = {
        "read": lambda: _data(pid, first, store),
        "write": lambda: _room(pid, first),
        "poll": lambda: _first(_data(pid, each, store) for each in _of_poll(pid, first, second)),
        "epoll": lambda: _first(_data(pid, each, store) for each in _of_epoll(pid, first)),
        "wait4": lambda: _child(pid, first),
        "waitid": lambda: _child(pid, second),
        "flock": lambda: _lock(pid, first),
        "fcntl": lambda: _lock(pid, first) if second in LOCKS_AND_WAITS else None,
        "open": lambda: _opening(_text(pid, first)),
        "openat": lambda: _opening(_text(pid, second)),
        "accept": lambda: _connection(pid, first, store),
        "futex": lambda: Awaited("a lock, a queue or a thread of its own", thread=True),
    }
    name = CALLS.get(platform.machine(), {}).get(int(words[0]))
    return told[name]() if name else None


def _first(found: Iterator[Awaited | None]) -> Awaited | None:
    return next((each for each in found if each is not None), None)


def _of_epoll(pid: int, descriptor: int) -> Iterator[int]:
    for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().splitlines():
        if line.startswith("tfd:"):
            yield int(line.split()[1])


def _of_poll(pid: int, address: int, count: int) -> Iterator[int]:
    if 0 < count <= MOST:
        for descriptor, _, _ in struct.iter_unpack("=ihh", _memory(pid, address, 8 * count)):
            if descriptor >= 0:
                yield descriptor


def _memory(pid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _text(pid: int, address: int) -> str:
    page = 4096
    return _memory(pid, address, page - address % page).partition(b"\0")[0].decode(errors="replace")


def _data(pid: int, descriptor: int, store: int) -> Awaited | None:
    """Return who can send what is read from a descriptor."""
    name = _link(pid, descriptor)
    if descriptor == 0 or name.startswith(("/dev/pts/", "/dev/tty")):
        return Awaited(
            "somebody to type on its standard input",
            "ask no question in a rank: what is typed does not reach one rank of several",
        )
    if name.startswith("socket:"):
        return _connection(pid, descriptor, store)
    if name.startswith("pipe:") or _is_fifo(name):
        return _pipe(pid, name)
    return _opening(name) if name.startswith("/") and not name.startswith("/dev/") else None


def _room(pid: int, descriptor: int) -> Awaited | None:
    """Return who is to take what is written to a descriptor."""
    name = _link(pid, descriptor)
    if not name.startswith("pipe:"):
        return _opening(name) if name.startswith("/") and not name.startswith("/dev/") else None
    what = {1: "standard output", 2: "standard error"}.get(descriptor, "pipe")
    readers = [each for each in _users(name, READS) if each != pid]
    who = f"process {readers[0]} ({_command(readers[0])})" if len(readers) == 1 else "another process"
    return Awaited(
        f"{who} to read its {what}, which is full", "mend what reads there, or write to a file",
        f"ps -fp {readers[0]}" if len(readers) == 1 else "", readers[0] if len(readers) == 1 else 0,
    )  # fmt: skip


def _pipe(pid: int, name: str) -> Awaited:
    writers = [each for each in _users(name, WRITES) if each != pid]
    called = "the named pipe " + name if name.startswith("/") else "a pipe"
    if not writers:
        return Awaited(f"data from {called} that no other process writes into", "start, or mend, what is to write")
    if writers[1:]:
        return Awaited(f"data from {called} that processes {', '.join(map(str, writers[:8]))} can write into")
    (writer,) = writers
    return Awaited(
        f"data from {called} that process {writer} ({_command(writer)}) writes into",
        f"mend what keeps process {writer}", f"ps -fp {writer}", writer,
    )  # fmt: skip


def _link(pid: int, descriptor: int) -> str:
    return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())


def _users(name: str, modes: tuple[int, ...]) -> Iterator[int]:
    """Yield the processes that have something open in one of these modes."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(_is_open(process, each.name, name, modes) for each in (process / "fd").iterdir()):
                yield int(process.name)


def _is_open(process: Path, descriptor: str, name: str, modes: tuple[int, ...]) -> bool:
    try:
        opened = str((process / "fd" / descriptor).readlink()) == name
        return opened and _flags(process / "fdinfo" / descriptor) & MODE in modes
    except (OSError, ValueError, StopIteration):
        return False  # closed meanwhile


def _flags(info: Path) -> int:
    return next(int(line.split()[1], 8) for line in info.read_text().splitlines() if line.startswith("flags:"))


def _connection(pid: int, descriptor: int, store: int) -> Awaited | None:
    import psutil

    with suppress(psutil.Error):
        for each in psutil.Process(pid).net_connections("inet"):
            if each.fd == descriptor:
                return _socket(pid, each, store)
    return None


def _socket(pid: int, connection, store: int) -> Awaited:  # type: ignore[no-untyped-def]  # noqa: ANN001 - psutil is imported late
    if connection.status == "LISTEN":
        return Awaited(f"somebody to connect to its port {connection.laddr.port}")
    peer = f"{connection.raddr.ip.removeprefix('::ffff:')}:{connection.raddr.port}" if connection.raddr else "its peer"
    if connection.status == "SYN_SENT":
        return Awaited(
            f"{peer} to answer at all", "open that port, or mend the address", f"nc -vz {peer.replace(':', ' ')}"
        )
    if store and connection.raddr and connection.raddr.port == store:
        return Awaited(
            f"an answer of the ranks' store ({peer}), which comes when a rank sets the key",
            "set the key on a rank before another one waits for it",
        )
    return Awaited(
        f"an answer of {peer}",
        "ask with a time-out, and find out why nothing comes",
        f"ss -tnpi dst {peer}   # PID {pid}",
    )


def _child(pid: int, number: int) -> Awaited | None:
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    child = number if number in children else next(iter(children), None) if len(children) == 1 else None
    if child is None:
        return None
    what = f"the end of process {child} ({_command(child)}), which it has started"
    return Awaited(what, f"mend what keeps process {child}, or start it with a time-out", f"ps -fp {child}", child)


def _lock(pid: int, descriptor: int) -> Awaited | None:
    name = _link(pid, descriptor)
    known = os.stat(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH116 - through the link
    inode = f"{os.major(known.st_dev):02x}:{os.minor(known.st_dev):02x}:{known.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] != "->" and words[5] == inode and words[4] != str(pid) and int(words[4]) > 0:
            holder = words[4]
            return Awaited(
                f"the lock of {name}, which process {holder} ({_command(int(holder))}) holds",
                f"let process {holder} give the lock back, or do without it",
                f"ps -fp {holder}",
                int(holder),
            )
    return Awaited(f"the lock of {name}, which a process of another host or container holds")


def _opening(path: str) -> Awaited | None:
    if not path:
        return None
    if _is_fifo(path):
        return Awaited(
            f"a process that opens the other end of the named pipe {path}", "start, or mend, what is to write"
        )
    return Awaited(f"the file system of {path} to answer", "", shlex.join(("timeout", "5", "stat", path)))


def _is_fifo(path: str) -> bool:
    try:
        return path.startswith("/") and stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - as the kernel names it
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").strip("\0").split("\0")
    except OSError:
        return "gone"
    text = " ".join(" ".join(words).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
