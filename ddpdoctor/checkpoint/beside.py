"""Names the files that a repair puts beside a checkpoint."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

LONGEST = 255  # bytes of a name, on all file systems that are in use


def temporary(path: Path) -> Path:
    """Name the file that is written before it takes the place of ``path``; there is one, so that none piles up."""
    return _beside(path, "ddpdoctor-new")


def journal_of(path: Path) -> Path:
    """Name the journal of a file."""
    return _beside(path, "ddpdoctor-journal")


def _beside(path: Path, suffix: str) -> Path:
    """Return a hidden name made of that of the file, or of its digest where it is long."""
    name = f".{path.name}.{suffix}"
    if len(os.fsencode(name)) > LONGEST:
        name = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()}.{suffix}"
    return path.with_name(name)
