"""Folders of sessions whose monitor was killed: the next session removes them, once nobody uses them.

A session's monitor and its ranks each hold a lock on a file of theirs, which the system releases however they end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ddpdoctor.watch.settings import ENDED

try:
    import fcntl
except ImportError:  # not on this system: then nothing is locked, and nothing removed
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

HELD = "held"  # the monitor's file
FRESH = 60.0  # seconds in which a folder's monitor comes to its lock
OURS = {
    ".events", ".pulse", ".ask", ".stack", ".stack-partial", ".flight", ".flight-partial", ".dump", ".crash", ".exits",
    ".unused",
}  # fmt: skip
NAMED = {HELD, "monitor", ENDED}  # with any other file, a copy of what a rehearsal has changed say, it stays


@contextmanager
def held(session: Path) -> Iterator[None]:
    """Hold the monitor's lock, after what nobody holds was removed."""
    sweep()
    file = os.open(session / HELD, os.O_RDWR | os.O_CREAT, 0o600)
    lock(file)
    try:
        yield
    finally:
        os.close(file)


def lock(file: int) -> None:
    """Hold an open file's lock, beside others who do, until the process ends."""
    if HAS_LOCKS:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def sweep() -> None:
    """Remove the folders of this user's sessions in which nobody holds a lock."""
    for folder in Path(tempfile.gettempdir()).glob("ddpdoctor-*") if HAS_LOCKS else ():
        with suppress(OSError):
            if folder.is_dir() and not folder.is_symlink() and _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    files = list(folder.iterdir())
    return (
        folder.stat().st_uid == os.getuid()
        and (folder / HELD).exists()
        and time.time() - (folder / HELD).stat().st_mtime > FRESH
        and all(each.name in NAMED or each.suffix in OURS for each in files)
        and not any(_is_locked(each) for each in files if each.name == HELD or each.suffix == ".events")
    )


def _is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(file)
