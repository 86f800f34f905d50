"""Files that the user's code opens to write, and those that it reads before the training begins.

An audit hook of Python's sees them, whatever opens them; it cannot be removed, and is inert once the watch has
ended.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import FileGrew, FileOpened
from ddpdoctor.watch.user_frames import frames, is_users, is_watchs, site_of

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.recorder import Recorder

MOST = 100  # of each kind, that are told
WRITES = os.O_WRONLY | os.O_RDWR
ANEW = os.O_TRUNC | os.O_APPEND
SYSTEM = ("/dev/", "/proc/", "/sys/")
# What passes the user's own path on; a logger opens its file on each rank, and writes on some.
PASSING_ON = frozenset(
    {"pathlib", "codecs", "gzip", "shutil", "json", "csv", "pickle", "zipfile", "numpy", "pandas", "matplotlib"}
)


def hook(recorder: Recorder) -> list[Opens]:
    """Be told of each file that Python opens."""
    opens = Opens(recorder)
    seen = weakref.ref(opens)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            told = seen()
            if told is not None and told.is_on:
                told.opened(args)

    sys.addaudithook(audit)
    recorder.before_first_step.append(opens.look_again)
    return [opens]


class Opens:
    """What was told of files by one process; ``undo`` ends it."""

    def __init__(self, recorder: Recorder) -> None:
        """Begin with none."""
        self.is_on = True
        self._recorder = recorder
        self._inside = False
        self._told = {True: 0, False: 0}
        self._read: dict[str, int] = {}

    def look_again(self) -> None:
        """Record which of the files that this process has read have changed since, at its first step."""
        read, self._read = self._read, {}
        for path, size in read.items():
            now = _size(path)
            if self._recorder.log is not None and now not in {size, -1}:
                self._recorder.emit(FileGrew, path=path, before=size, size=now, site=None)

    def undo(self) -> None:
        """Record nothing any more."""
        self.is_on = False

    def opened(self, args: tuple[Any, ...]) -> None:
        """Take note of one file, if a rank of a training opens it."""
        log = self._recorder.log
        if log is None or self._inside or log.pid != os.getpid():
            return
        path, _, flags = args
        if not isinstance(flags, int) or not isinstance(path, (str, bytes, os.PathLike)):
            return
        writes = bool(flags & WRITES)
        wanted = flags & ANEW if writes else not log.counters[event_log.STEPS]
        if not wanted or flags & os.O_EXCL or self._told[writes] >= MOST:
            return
        self._inside = True
        try:
            self._recorder.safely(self._tell, path, flags, writes)
        finally:
            self._inside = False

    def _tell(self, path: Any, flags: int, writes: bool) -> None:  # noqa: FBT001 - what safely() passes on
        site = _users_line()
        full = os.path.realpath(os.fsdecode(path))
        session = self._recorder.settings.session
        if session and full.startswith(os.path.realpath(session)):
            return  # our own
        if site is None or full.startswith(SYSTEM) or full.endswith((".py", ".pyc", ".so", ".lock")):
            return
        self._told[writes] += 1
        size = _size(full)
        if not writes and size >= 0:
            self._read.setdefault(full, size)
        self._recorder.emit(
            FileOpened,
            path=full,
            writes=writes,
            appends=bool(flags & os.O_APPEND),
            size=size,
            communications=self._recorder.writer.counters[event_log.COMMUNICATIONS],
            site=site,
        )


def _users_line() -> Site | None:
    """Return the user's line that opens a file, by itself or through what passes its path on; else None."""
    for frame in frames():
        file = frame.f_code.co_filename
        if is_users(file):
            return site_of(frame)
        if not is_watchs(file.partition(" ")[0]) and _root(frame.f_globals.get("__name__")) not in PASSING_ON:
            return None
    return None


def _size(path: str) -> int:
    """Return the size of a file in bytes; -1 where there is none."""
    return os.path.getsize(path) if os.path.isfile(path) else -1  # noqa: PTH113, PTH202 - a plain string


def _root(module: Any) -> str:
    return str(module).partition(".")[0]
