"""What somebody who made a slip of the keyboard has meant."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Iterable
from pathlib import Path

SLIP = 0.85  # how alike a slip of the keyboard and the word are, as difflib measures it
KINDS = (
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISDIR, "a folder"),
)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a refusal that offers the names most like a word; empty where none is like it."""
    close = _close(word, known, most=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def closest(word: str, known: Iterable[str]) -> str:
    """Return the name that a word is a slip of: a letter or two, or the case; empty where there is none."""
    return next(iter(_close(word, known, most=1, cutoff=SLIP)), "")


def why_no_file(path: str | Path) -> str:
    """Return why there is no regular file at a path: what else is there, or what is there of a like name."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except PermissionError:
        return f"{path} cannot be read: permission denied"
    except (OSError, ValueError):
        return f"there is no file {path}{_neighbours(path)}"
    kind = next((name for has, name in KINDS if has(mode)), "something else")
    return f"{path} is {kind}, not a regular file"


def _neighbours(path: Path) -> str:
    try:
        close = _close(path.name, (each.name for each in path.parent.iterdir()), most=1)
    except OSError:
        return f": there is no folder {path.parent}"
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def _close(word: str, known: Iterable[str], *, most: int, cutoff: float = 0.6) -> list[str]:
    """Return the names most like a word, whatever the case, and whether - or _ joins their parts."""
    names = {_folded(name): name for name in known}
    return [names[each] for each in difflib.get_close_matches(_folded(word), names, n=most, cutoff=cutoff)]


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")
