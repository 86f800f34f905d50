"""What is named instead of a folder that is no checkpoint itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MOST = 5


def offered(path: Path, files: Iterable[Path], holds: Iterable[Callable[[Path], Any]]) -> str:
    """Return which of its files, or else of its folders, can be named: as the output of a framework has them.

    A folder is one of a checkpoint where any of ``holds`` says so; the latest comes first.
    """
    names = [each.name for each in files]
    if names:
        return f"; name one of its files: {', '.join(names[:MOST])}"
    inner = [each for each in path.iterdir() if each.is_dir() and any(has(each) for has in holds)]
    latest = sorted(inner, key=lambda each: each.stat().st_mtime, reverse=True)
    folders = ", ".join(each.name for each in latest[:MOST])
    return f"; name one of its folders: {folders}" if folders else ", and holds no checkpoint file"
