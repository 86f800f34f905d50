"""Sees, before a file is changed, that it can be and that nobody else is at it."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ddpdoctor.facets import BadTarget

WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def refuse_unwritable_folder(folder: Path) -> None:
    """Refuse a folder that is not there, or in which no file can be made.

    Raises:
        BadTarget: it is so.
    """
    if not folder.is_dir():
        raise BadTarget(f"{folder}: there is no such folder")
    if not folder.stat().st_mode & WRITABLE or not os.access(folder, os.W_OK):
        raise BadTarget(f"{folder} is a read-only folder{_why_not(folder)}")


def _why_not(path: Path) -> str:
    """Return why somebody may not write there: permissions, the owner or the mount, each with a cure of its own."""
    known = path.stat()
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return ", as its file system is mounted read-only"
    mode = f"mode {stat.S_IMODE(known.st_mode):03o}"
    if known.st_uid not in {os.geteuid(), 0} or (known.st_uid == 0 and os.geteuid() != 0):
        return f" for user {os.geteuid()} ({mode}, its owner is user {known.st_uid})"
    if known.st_mode & stat.S_IWUSR:
        return f" though its mode is {stat.S_IMODE(known.st_mode):03o}: an attribute forbids it, which lsattr shows"
    return f" ({mode}; chmod u+w allows it)"


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link: what it leads to is known by another name, to others, too.

    Raises:
        BadTarget: it is one.
    """
    if path.is_symlink():
        raise BadTarget(f"{path} is a symbolic link to {path.resolve()}: name that, or write a copy with -o")


def refuse_in_place(path: Path) -> None:
    """Refuse a file that is not to be changed where it is.

    Raises:
        BadTarget: it is a link, has other names, is read-only, or is open for writing in another process.
    """
    refuse_link(path)
    known = path.stat()
    if stat.S_ISREG(known.st_mode) and known.st_nlink > 1:
        raise BadTarget(f"{path} has {known.st_nlink} names (hard links), all of which would change: use -o")
    if not known.st_mode & WRITABLE or not os.access(path, os.W_OK):
        raise BadTarget(f"{path} is read-only{_why_not(path)}: write a copy with -o")
    refuse_unwritable_folder(path.absolute().parent)
    refuse_written(path)


def refuse_written(path: Path) -> None:
    """Refuse a file that another process has open for writing.

    The kernel tells it by refusing a read lease (fcntl(2), F_SETLEASE); where it has none, nothing is known.

    Raises:
        BadTarget: it is so.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # its usual signal would end this process
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            raise BadTarget(f"{path} is being written by {_writers(path)}") from None
        except OSError:
            return  # another owner's file, or a file system without leases
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


def _writers(path: Path) -> str:
    import psutil

    real = str(path.resolve())
    for process in psutil.process_iter(["pid", "name"]):
        with suppress(psutil.Error, OSError):
            if any(each.path == real and getattr(each, "mode", "w") != "r" for each in process.open_files()):
                return f"process {process.info['pid']} ({process.info['name']})"
    return "another process"


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep a second ddpdoctor from the same file.

    Raises:
        BadTarget: there is one.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadTarget(f"{path} is locked by another process") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)
