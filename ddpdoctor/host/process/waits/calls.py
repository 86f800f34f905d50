"""What a system call that a process is inside of waits for, and what that waits for in its turn."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ddpdoctor.host.process.open_files import READS, WRITES, command_of, is_fifo, link_of, users_of
from ddpdoctor.host.process.system_calls import asleep, of_epoll, of_poll, text_at, under_way
from ddpdoctor.host.process.threads import thread_folders
from ddpdoctor.host.process.waits.files import lock, opening
from ddpdoctor.host.process.waits.pipes import PIPE, STREAMS, pipe, room
from ddpdoctor.host.process.waits.sockets import connection
from ddpdoctor.host.process.waits.wait import Awaited

LOCKS_AND_WAITS = {7, 38}  # F_SETLKW, F_OFD_SETLKW


READ = (
    "read what it prints while it runs: communicate(), or subprocess.run(..., capture_output=True); else leave the "
    "pipe out"
)


EMPTY = "take all of it out before join(): a process does not end before what it has put into a queue is taken"


def below(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that these have."""
    with suppress(OSError, ValueError):
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [*children, *(each for child in children for each in below(child))]
    return []


def of_call(pid: int, store: int) -> Awaited | None:
    """Return what the system call waits for that a process is inside of; ``store`` is the port of the ranks' store."""
    call = under_way(pid)
    if call is None:
        return None
    name, first, second = call
    told: dict[str, Callable[[], Awaited | None]] = {
        "read": lambda: _data(pid, first, store),
        "write": lambda: room(pid, first),
        "poll": lambda: _first(_data(pid, each, store) for each in of_poll(pid, first, second)),
        "epoll": lambda: _first(_data(pid, each, store) for each in of_epoll(pid, first)),
        "wait4": lambda: _child(pid, first),
        "waitid": lambda: _child(pid, second),
        "start": lambda: _begun(pid),
        "flock": lambda: lock(pid, first),
        "fcntl": lambda: lock(pid, first) if second in LOCKS_AND_WAITS else None,
        "open": lambda: opening(text_at(pid, first)),
        "openat": lambda: opening(text_at(pid, second)),
        "accept": lambda: connection(pid, first, store),
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
        return connection(pid, descriptor, store)
    if name.startswith("pipe:") or is_fifo(name):
        return _of_writer(pipe(pid, name), pid)
    return opening(name) if name.startswith("/") and not name.startswith("/dev/") else None


def _of_writer(found: Awaited, pid: int) -> Awaited:
    """Add what the one process that can write into a pipe waits for in its turn, where this one has started it."""
    inner = _within(found.process, pid) if found.mend and found.process in below(pid) else None
    if inner is None:
        return found
    return found._replace(what=f"{found.what}, and which waits for {inner.what}", mend=inner.mend or found.mend)


def _begun(pid: int) -> Awaited | None:
    """Return which process it has just started: vfork(2) ends when that has found its program, or ended."""
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    begins = [each for each in children if command_of(each) == command_of(pid)]
    if len(begins) != 1:
        return None
    inner = _within(begins[0], pid)
    return Awaited(
        f"process {begins[0]}, which it has just started, to come to its program"
        + (f": it waits for {inner.what}" if inner else ""),
        "look at what it is to run, and at the file system on which that lies",
        f"ps -fp {begins[0]}",
        begins[0],
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
        found = of_call(child, 0)
        return None if found is None or found.thread else found
    return None


def _unread(child: int, parent: int) -> str:
    """Return the stream that a child cannot write to, since nobody but its parent can read it, which waits for it.

    A multiprocessing.Queue is written by a thread of its own, for whose end the child waits when it ends.
    """
    for thread in thread_folders(child):
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
