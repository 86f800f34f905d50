"""Where programs put their temporary files here, and whether they can."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

NAMES = ("TMPDIR", "TEMP", "TMP")
USUAL = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - what tempfile tries, in this order
LEAST = 16 << 20  # bytes: a log of torchrun, a socket, a kernel that is compiled


@dataclass(frozen=True, slots=True)
class Temporary:
    """The folder that the first of TMPDIR, TEMP and TMP names, ``name``, or /tmp where none is set.

    ``problem`` is why nothing can be written there, empty where it can; ``instead`` is where Python's tempfile goes
    then, empty where nowhere.
    """

    folder: str = ""
    name: str = ""
    problem: str = ""
    instead: str = ""


def gather_temporary(environ: Mapping[str, str], usual: Iterable[str] = USUAL) -> Temporary:
    """Look at it; nothing is written."""
    name = next((each for each in NAMES if environ.get(each)), "")
    usual = (*usual, str(Path.cwd()))
    folder = environ[name] if name else usual[0]
    problem = _problem(Path(folder))
    others = [environ[each] for each in NAMES if environ.get(each)] + [*usual]
    instead = next((each for each in others if each != folder and not _problem(Path(each))), "") if problem else ""
    return Temporary(folder, name, problem, instead)


def _problem(folder: Path) -> str:
    try:
        if not folder.is_dir():
            return "it is no folder" if folder.exists() else "it is not there"
        room = os.statvfs(folder)
    except OSError as exc:
        return exc.strerror or str(exc)
    if room.f_flag & os.ST_RDONLY:
        return "the file system is read-only"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this user is not allowed to write there"
    if room.f_bavail * room.f_frsize < LEAST:
        return f"{room.f_bavail * room.f_frsize >> 10:,} kB are free there"
    return "no file more can be made there: all inodes are in use" if room.f_files and not room.f_favail else ""
