"""A look at the user's code leaves files as they were: what Python is about to change is noted, and undone at the end.

``journal`` in the session's folder has a JSON line a change, in the order in which all processes made them; undone
backwards, they give back what was there. What a library writes without Python's ``open`` is not seen.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

JOURNAL = "journal"
FILES = "DDPDOCTOR_FILES"
"""The variable by which a rank is told the folder for its notes."""
WRITES = os.O_WRONLY | os.O_RDWR
LARGE = 1 << 28  # bytes: a larger file that is opened to read and to write is a memory-mapped data set, and not copied
CACHES = ("__pycache__", ".cache", ".triton")


def note_changes(session: str) -> None:
    """Note from now on what this process does to files: an audit hook, which stays as long as the process."""
    noting = threading.local()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        note = NOTES.get(event)
        if note is None or getattr(noting, "now", False):
            return
        noting.now = True
        try:
            note(Path(session), *args)
        finally:
            noting.now = False

    sys.addaudithook(hook)


def overwriting(session: Path, path: str) -> None:
    """Note that a file is about to be made, or written anew."""
    if os.path.lexists(path):
        _keep(session, path)
    else:
        _write(session, "new", path)


def undo(session: Path, *, keep_new: bool = False) -> None:
    """Take back all that was noted, last first; ``keep_new``: but what was made anew, as a download is, stays."""
    noted = list(_read(session))
    new = {path for kind, path, *_ in noted if kind in {"new", "folder"}} if keep_new else set()
    for kind, path, *more in reversed(noted):
        if path in new:
            continue
        with suppress(OSError):  # somebody else has changed it since: theirs stays
            _UNDO[kind](path, *more)


def _opened(session: Path, file: Any, _: Any, flags: Any) -> None:
    path = _path(session, file)
    if path is None or not isinstance(flags, int) or not flags & WRITES:
        return
    size = os.path.getsize(path) if os.path.isfile(path) else 0  # noqa: PTH113, PTH202 - path is a plain string
    if flags & os.O_APPEND and size:
        _write(session, "size", path, size)
    elif flags & os.O_TRUNC or size < LARGE:
        overwriting(session, path)


def _made(session: Path, file: Any, *_: Any) -> None:
    path = _path(session, file)
    if path is not None and not os.path.lexists(path):
        _write(session, "folder", path)


def _renamed(session: Path, source: Any, target: Any, *_: Any) -> None:
    before, after = _path(session, source), _path(session, target)
    if before is not None and after is not None and os.path.lexists(before):
        _keep(session, after)
        _write(session, "moved", before, after)


def _removed(session: Path, file: Any, *folder: Any) -> None:
    path = _path(session, file)
    if path is not None and folder in {(), (-1,), (None,)}:  # else relative to an open folder, as in rmtree
        _keep(session, path)


def _removed_tree(session: Path, file: Any, *_: Any) -> None:
    for parent, _folders, files in os.walk(os.fspath(file)):
        for name in files:
            _removed(session, str(Path(os.fsdecode(parent), os.fsdecode(name))))
        _emptied(session, parent)


def _emptied(session: Path, file: Any, *folder: Any) -> None:
    path = _path(session, file)
    if path is not None and folder in {(), (-1,), (None,)} and Path(path).is_dir():
        _write(session, "emptied", path)


def _linked(session: Path, _: Any, target: Any, *__: Any) -> None:
    path = _path(session, target)
    if path is not None:
        overwriting(session, path)


NOTES: dict[str, Callable[..., None]] = {
    "open": _opened,
    "os.mkdir": _made,
    "os.rename": _renamed,
    "os.remove": _removed,
    "os.rmdir": _emptied,
    "os.truncate": lambda session, file, _: _removed(session, file),
    "os.link": _linked,
    "os.symlink": _linked,
    "shutil.rmtree": _removed_tree,
}


def _path(session: Path, file: Any) -> str | None:
    """Return the absolute path of a file of the user's; None for devices, caches, open files and our own."""
    try:
        path = os.path.abspath(os.fsdecode(file))  # noqa: PTH100 - a link stays one, and nothing is resolved
    except TypeError:
        return None
    parts = Path(path).parts
    ours = path.startswith((f"{session}/", "/dev/", "/proc/", "/sys/")) or not session.is_dir()
    cached = any(part in CACHES or part.startswith("torchinductor_") for part in parts)
    return None if ours or cached else path


def _keep(session: Path, path: str) -> None:
    """Copy a file of the user's once; what the rehearsal made itself is undone by where it came from."""
    known = any(path == each and kind in {"new", "kept"} for kind, each, *_ in _read(session))
    if known or not Path(path).is_file():
        return
    number, copy = tempfile.mkstemp(dir=session, suffix=".kept")
    os.close(number)
    try:
        shutil.copy2(path, copy)
    except OSError as exc:
        raise OSError(exc.errno, f"ddpdoctor cannot keep a copy of {path}, which is about to change") from exc
    _write(session, "kept", path, copy)


def _restored(path: str, copy: str) -> None:
    shutil.copy2(copy, path)


def _shortened(path: str, size: int) -> None:
    if Path(path).stat().st_size > size:
        os.truncate(path, size)


_UNDO: dict[str, Callable[..., Any]] = {
    "new": os.unlink,
    "folder": os.rmdir,
    "kept": _restored,
    "size": _shortened,
    "moved": lambda before, after: os.replace(after, before),  # noqa: PTH105 - both are plain strings
    "emptied": lambda path: os.makedirs(path, exist_ok=True),  # noqa: PTH103 - as above
}


def _write(session: Path, *entry: Any) -> None:
    number = os.open(session / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(number, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(number)


def _read(session: Path) -> Iterator[list[Any]]:
    with suppress(FileNotFoundError), (session / JOURNAL).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
