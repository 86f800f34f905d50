"""Hashes of the training's own files, so that hosts can compare them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

FILES = 1000
LARGEST = 1 << 20  # bytes of a source file
LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "venv"}


def hashes(named: Iterable[str]) -> dict[str, str]:
    """Return a hash of each Python file that is named, and of those beside and below it, by their names from there."""
    found: dict[str, str] = {}
    for name in named:
        path = Path(name)
        if path.suffix == ".py" and path.is_file():
            found[path.name] = _hash(path)
            for each in _below(path.parent):
                if len(found) >= FILES:
                    return found
                found[str(each.relative_to(path.parent))] = _hash(each)
    return found


def _below(folder: Path, depth: int = 3) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for each in entries:
        if each.suffix == ".py" and each.is_file() and each.stat().st_size <= LARGEST:
            yield each
        elif depth and each.is_dir() and not each.name.startswith(".") and each.name not in LEFT_OUT:
            yield from _below(each, depth - 1)


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return "unreadable"
