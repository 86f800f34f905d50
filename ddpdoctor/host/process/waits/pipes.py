"""Who is at the other end of a pipe that a process waits for."""

from __future__ import annotations

from ddpdoctor.host.process.open_files import READS, WRITES, command_of, link_of, users_of
from ddpdoctor.host.process.parents import parent_of
from ddpdoctor.host.process.waits.files import opening
from ddpdoctor.host.process.waits.sockets import sending
from ddpdoctor.host.process.waits.wait import Awaited

STREAMS = {1: "standard output", 2: "standard error"}
PIPE = "pipe"


def room(pid: int, descriptor: int) -> Awaited | None:
    """Return who is to take what is written to a descriptor."""
    name = link_of(pid, descriptor)
    if name.startswith("socket:"):
        return sending(pid, descriptor)
    if not name.startswith("pipe:"):
        return opening(name) if name.startswith("/") and not name.startswith("/dev/") else None
    what = STREAMS.get(descriptor, PIPE)
    readers = [each for each in users_of(name, READS) if each != pid]
    parent = parent_of(pid)
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


def pipe(pid: int, name: str) -> Awaited:
    """Return who can write into a pipe that a process reads from; of several the one that has started the others."""
    writers = [each for each in users_of(name, WRITES) if each != pid]
    called = "the named pipe " + name if name.startswith("/") else "a pipe"
    if not writers:
        return Awaited(f"data from {called} that no other process writes into", "start, or mend, what is to write")
    if writers[1:]:
        first = [each for each in writers if parent_of(each) not in writers]
        return Awaited(
            f"data from {called} that processes {', '.join(map(str, writers[:8]))} can write into",
            process=first[0] if len(first) == 1 else 0,
        )
    (writer,) = writers
    what = f"that process {writer} ({command_of(writer)}) writes into"
    if parent_of(writer) == 1 and link_of(pid, 0) != name:
        return Awaited(
            f"the end of {called} {what}: the program that has started it in the background is gone, and reading ends "
            "only with the last process that has the pipe",
            "give what runs in the background another output: `command > log 2>&1 &` in the shell",
            f"ps -fp {writer}", writer,
        )  # fmt: skip
    return Awaited(f"data from {called} {what}", f"mend what keeps process {writer}", f"ps -fp {writer}", writer)
