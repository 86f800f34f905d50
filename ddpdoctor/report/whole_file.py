"""Writes a text so that nobody sees half of it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write the file so that a reader sees all of it or nothing; a pipe or a device, as it comes.

    The new file has the mode of the old one.
    """
    if is_stream(path):
        path.write_text(text, encoding="utf-8")
        return
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        whole = Path(folder) / path.name
        whole.write_text(text, encoding="utf-8", newline="")
        if path.exists():
            shutil.copymode(path, whole)
        whole.replace(path)


def is_stream(path: Path) -> bool:
    """Whether the path is there and is a pipe, a device or a terminal."""
    return path.exists() and not path.is_file() and not path.is_dir()
