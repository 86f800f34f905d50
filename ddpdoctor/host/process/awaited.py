"""What a process that rests waits for, as the kernel tells it: the system call that its main thread is inside of.

Source: proc(5), "/proc/locks". It takes the rights of a debugger; where these are missing, and on other systems,
nothing is known.
"""

from __future__ import annotations

import os
import shlex
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.host.process.open_files import READS, WRITES, command_of, is_fifo, link_of, users_of
from ddpdoctor.host.process.system_calls import asleep, of_epoll, of_poll, text_at, under_way

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame

LOCKS_AND_WAITS = {7, 38}  # F_SETLKW, F_OFD_SETLKW
DEBUGGERS = ("/pdb.py", "/bdb.py", "/IPython/terminal/debugger.py", "/ipdb/__main__.py", "/pudb/debugger.py")


class Awaited(NamedTuple):
    """``what`` completes "it waits for"; ``mend`` and ``command`` are what to do about it.

    ``process`` is whom it waits for, 0 where nobody is known. ``thread``: a lock, a queue or a thread of its own, of
    which the kernel knows no more. ``typed``: somebody is to type.
    """

    what: str
    mend: str = ""
    command: str = ""
    process: int = 0
    thread: bool = False
    typed: bool = False


STREAMS = {1: "standard output", 2: "standard error"}
PIPE = "pipe"
READ = (
    "read what it prints while it runs: communicate(), or subprocess.run(..., capture_output=True); else leave the "
    "pipe out"
)
EMPTY = "take all of it out before join(): a process does not end before what it has put into a queue is taken"
THE_STORE = "the ranks' store"
SHARED = "/multiprocessing/synchronize.py"
OF_PROCESSES = Awaited(
    "a lock or a queue that it shares with other processes",
    "look at the processes that it has started, or that were started beside it: one has ended, or stands, and holds it",
)


def awaited(pid: int, frames: Sequence[Frame] = (), store: int = 0) -> Awaited | None:
    """Return what a process waits for; None where it does not wait, or nothing is known.

    ``frames`` are those of its stack, as far as they are known; ``store`` is the port of the ranks' store.
    """
    if any(frame.file.endswith(DEBUGGERS) for frame in frames):
        return Awaited(
            "a command at the prompt of a debugger",
            "take the breakpoint out: what is typed does not reach one rank of several",
            typed=True,
        )
    with suppress(OSError, ValueError, IndexError, struct.error):
        found = _of(pid, store)
        return OF_PROCESSES if found and found.thread and frames and frames[0].file.endswith(SHARED) else found
    return None


def asks_the_store(pid: int, store: int) -> bool:
    """Whether a process waits for an answer of the ranks' store, at this port of it; 0 is none."""
    found = awaited(pid, store=store) if store else None
    return found is not None and THE_STORE in found.what


def _of(pid: int, store: int) -> Awaited | None:
    call = under_way(pid)
    if call is None:
        return None
    name, first, second = call
    told: dict[str, Callable[[], Awaited | None]] = {
        "read": lambda: _data(pid, first, store),
        "write": lambda: _room(pid, first),
        "poll": lambda: _first(_data(pid, each, store) for each in of_poll(pid, first, second)),
        "epoll": lambda: _first(_data(pid, each, store) for each in of_epoll(pid, first)),
        "wait4": lambda: _child(pid, first),
        "waitid": lambda: _child(pid, second),
        "flock": lambda: _lock(pid, first),
        "fcntl": lambda: _lock(pid, first) if second in LOCKS_AND_WAITS else None,
        "open": lambda: _opening(text_at(pid, first)),
        "openat": lambda: _opening(text_at(pid, second)),
        "accept": lambda: _connection(pid, first, store),
        "futex": lambda: Awaited("a lock, a queue or a thread of its own", thread=True),
        "signal": lambda: Awaited("a signal, in a system call that nothing else ends"),
        "sleep": lambda: _sleep(pid),
        "sleep_on": lambda: _sleep(pid),
        "select": lambda: _sleep(pid),
        "pselect": lambda: _sleep(pid),
    }
    return told[name]()


def _sleep(pid: int) -> Awaited | None:
    left = asleep(pid)
    return None if left is None else Awaited(f"the end of a sleep, {left:.0f} s from now at the most")


def _first(found: Iterator[Awaited | None]) -> Awaited | None:
    return next((each for each in found if each is not None), None)


def _data(pid: int, descriptor: int, store: int) -> Awaited | None:
    """Return who can send what is read from a descriptor."""
    name = link_of(pid, descriptor)
    if descriptor == 0 or name.startswith(("/dev/pts/", "/dev/tty")):
        return Awaited(
            "somebody to type on its standard input",
            "ask no question in a rank: what is typed does not reach one rank of several",
            typed=True,
        )
    if name.startswith("socket:"):
        return _connection(pid, descriptor, store)
    if name.startswith("pipe:") or is_fifo(name):
        return _pipe(pid, name)
    return _opening(name) if name.startswith("/") and not name.startswith("/dev/") else None


def _room(pid: int, descriptor: int) -> Awaited | None:
    """Return who is to take what is written to a descriptor."""
    name = link_of(pid, descriptor)
    if name.startswith("socket:"):
        return _sending(pid, descriptor)
    if not name.startswith("pipe:"):
        return _opening(name) if name.startswith("/") and not name.startswith("/dev/") else None
    what = STREAMS.get(descriptor, PIPE)
    readers = [each for each in users_of(name, READS) if each != pid]
    parent = _parent(pid)
    if what == PIPE and parent in readers:
        return Awaited(
            f"process {parent} ({command_of(parent)}), which has started it, to take out what was put into a queue or "
            "pipe, which is full",
            "take out while the ranks run: torch.multiprocessing.spawn(..., join=False), get(), and join() after that",
            f"ps -fp {parent}",
            parent,
        )
    who = f"process {readers[0]} ({command_of(readers[0])})" if len(readers) == 1 else "another process"
    return Awaited(
        f"{who} to read its {what}, which is full", "mend what reads there, or write to a file",
        f"ps -fp {readers[0]}" if len(readers) == 1 else "", readers[0] if len(readers) == 1 else 0,
    )  # fmt: skip


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _pipe(pid: int, name: str) -> Awaited:
    writers = [each for each in users_of(name, WRITES) if each != pid]
    called = "the named pipe " + name if name.startswith("/") else "a pipe"
    if not writers:
        return Awaited(f"data from {called} that no other process writes into", "start, or mend, what is to write")
    if writers[1:]:
        return Awaited(f"data from {called} that processes {', '.join(map(str, writers[:8]))} can write into")
    (writer,) = writers
    return Awaited(
        f"data from {called} that process {writer} ({command_of(writer)}) writes into",
        f"mend what keeps process {writer}", f"ps -fp {writer}", writer,
    )  # fmt: skip


def _connection(pid: int, descriptor: int, store: int) -> Awaited | None:
    found = _of_inet(pid, descriptor)
    return None if found is None else _socket(pid, found, store)


def _sending(pid: int, descriptor: int) -> Awaited | None:
    """Return who is to read what is sent over a connection, whose buffers on both ends are full."""
    found = _of_inet(pid, descriptor)
    if found is None or not found.raddr:
        return None
    peer = f"{found.raddr.ip.removeprefix('::ffff:')}:{found.raddr.port}"
    return Awaited(
        f"{peer} to read what it sends, of which no more fits into the connection",
        "send with a time-out, settimeout(), and mend what reads there",
        f"ss -tnpi dst {peer}   # PID {pid}",
    )


def _of_inet(pid: int, descriptor: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - psutil is imported late
    import psutil

    with suppress(psutil.Error):
        return next((each for each in psutil.Process(pid).net_connections("inet") if each.fd == descriptor), None)
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
            f"an answer of {THE_STORE} ({peer}), which comes when a rank sets the key",
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
    what = f"the end of process {child} ({command_of(child)}), which it has started"
    if found := _unread(child, pid):
        queue = found == PIPE
        way = "for this one to take out what it has put into a queue or pipe" if queue else "for this one to read its"
        return Awaited(
            f"{what}, and which waits {way}{'' if queue else f' {found}'}, which is full", EMPTY if queue else READ,
            f"ps -fp {child}", child,
        )  # fmt: skip
    mend = f"mend what keeps process {child}, or start it with a time-out"
    if inner := _within(child, pid):
        what, mend = f"{what}, and which waits for {inner.what}", inner.mend or mend
    return Awaited(what, mend, f"ps -fp {child}", child)


def _within(child: int, parent: int) -> Awaited | None:
    """Return what a child waits for in its turn, but for its own threads: nobody has looked at their stacks."""
    with suppress(OSError, ValueError, IndexError, struct.error):
        call = under_way(child)
        stdin = link_of(child, 0)
        if call and call[:2] == ("read", 0) and stdin.startswith("pipe:") and parent in users_of(stdin, WRITES):
            return Awaited(
                "this one to write to its standard input, or to close it",
                "close it, or let communicate() write and close it; stdin=subprocess.DEVNULL where it needs none",
            )
        found = _of(child, 0)
        return None if found is None or found.thread else found
    return None


def _unread(child: int, parent: int) -> str:
    """Return the stream that a child cannot write to, since nobody but its parent can read it, which waits for it.

    A multiprocessing.Queue is written by a thread of its own, for whose end the child waits when it ends.
    """
    for thread in sorted(Path(f"/proc/{child}/task").glob("[0-9]*")):
        with suppress(OSError, ValueError, IndexError):
            call = under_way(child, int(thread.name))
            name = link_of(child, call[1]) if call is not None and call[0] == "write" else ""
            if (
                call
                and name.startswith("pipe:")
                and [each for each in users_of(name, READS) if each != child] == [parent]
            ):
                return STREAMS.get(call[1], PIPE)
    return ""


def locked_files(pid: int) -> Iterator[str]:
    """Yield the files whose whole a process has locked, by flock or fcntl, by the name under which it has them open."""
    with suppress(OSError, ValueError, IndexError):
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        locked = {words[5] for words in lines if words[1] != "->" and words[4] == str(pid) and words[3] == "WRITE"}
        for each in Path(f"/proc/{pid}/fd").iterdir() if locked else ():
            with suppress(OSError):
                if _inode(each) in locked:
                    yield os.readlink(each)  # noqa: PTH115 - a text


def _inode(path: str | Path) -> str:
    """Return how /proc/locks names the file behind a link to an open one."""
    known = os.stat(path)  # noqa: PTH116 - through the link
    return f"{os.major(known.st_dev):02x}:{os.minor(known.st_dev):02x}:{known.st_ino}"


def _lock(pid: int, descriptor: int) -> Awaited | None:
    name = link_of(pid, descriptor)
    inode = _inode(f"/proc/{pid}/fd/{descriptor}")
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] != "->" and words[5] == inode and words[4] != str(pid) and int(words[4]) > 0:
            holder = words[4]
            return Awaited(
                f"the lock of {name}, which process {holder} ({command_of(int(holder))}) holds",
                f"let process {holder} give the lock back, or do without it",
                f"ps -fp {holder}",
                int(holder),
            )
    return Awaited(f"the lock of {name}, which a process of another host or container holds")


def _opening(path: str) -> Awaited | None:
    if not path:
        return None
    if is_fifo(path):
        return Awaited(
            f"a process that opens the other end of the named pipe {path}", "start, or mend, what is to write"
        )
    return Awaited(f"the file system of {path} to answer", "", shlex.join(("timeout", "5", "stat", path)))
