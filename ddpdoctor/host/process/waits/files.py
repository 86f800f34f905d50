"""Locks of files, and files that are opened or read, which a process waits for.

Source: proc(5), "/proc/locks".
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ddpdoctor.host.process.open_files import command_of, is_fifo, link_of, users_of
from ddpdoctor.host.process.waits.wait import Awaited

ANY = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)


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


def lock(pid: int, descriptor: int) -> Awaited:
    """Return who holds the lock of an open file."""
    name = link_of(pid, descriptor)
    inode = _inode(f"/proc/{pid}/fd/{descriptor}")
    held = [words for words in map(str.split, Path("/proc/locks").read_text().splitlines()) if words[1] != "->"]
    held = [words for words in held if words[5] == inode]
    for words in held:
        if words[1] == "FLOCK" and (keeper := _inherited_by(name, inode, words[4])):
            return Awaited(
                f"the lock of {name}, which process {words[4]} took and which its child {keeper} "
                f"({command_of(keeper)}) keeps: it was forked meanwhile, with the open file, whose lock goes when the "
                "last copy is closed",
                "unlock before the file is closed, fcntl.flock(file, fcntl.LOCK_UN): that holds for all copies of it",
                f"ls -l /proc/{keeper}/fd",
                int(words[4]),
            )
        if words[4] != str(pid) and int(words[4]) > 0:
            holder = words[4]
            return Awaited(
                f"the lock of {name}, which process {holder} ({command_of(int(holder))}) holds",
                f"let process {holder} give the lock back, or do without it",
                f"ps -fp {holder}",
                int(holder),
            )
    if any(words[1] == "FLOCK" and words[4] == str(pid) for words in held):  # fcntl's do not keep off their own process
        return Awaited(
            f"the lock of {name}, which this process has itself, by a file that it opened before",
            "take the lock once: flock is of an open file, and keeps a later open() out, in its own process too",
        )
    return Awaited(f"the lock of {name}, which a process of another host or container holds")


def _inherited_by(name: str, inode: str, taker: str) -> int | None:
    """Return who has the open file of a lock where the process that took the lock has it no more."""
    if Path(f"/proc/{taker}").exists() and not os.access(f"/proc/{taker}/fd", os.R_OK):
        return None  # another user's
    keepers = [each for each in users_of(name, ANY) if _has_lock(each, {inode, taker})]
    return keepers[0] if keepers and int(taker) not in keepers else None


def _has_lock(pid: int, words: set[str]) -> bool:
    """Whether an open file of a process has that lock of flock's: proc(5), "/proc/pid/fdinfo"."""
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/fdinfo").iterdir():
            with suppress(OSError):
                lines = [line.split() for line in each.read_text().splitlines() if line.startswith("lock:")]
                if any({"FLOCK", *words} <= {*line} for line in lines):
                    return True
    return False


def opening(path: str) -> Awaited | None:
    """Return what opening, or reading, a file waits for; None where the file is not known."""
    if not path:
        return None
    if is_fifo(path):
        return Awaited(
            f"a process that opens the other end of the named pipe {path}", "start, or mend, what is to open that end"
        )
    return Awaited(f"the file system of {path} to answer", "", shlex.join(("timeout", "5", "stat", path)))
