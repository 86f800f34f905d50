"""Names the files that a repair puts beside a checkpoint."""

from __future__ import annotations

from pathlib import Path


def temporary(path: Path) -> Path:
    """Name the file that is written before it takes the place of ``path``; there is one, so that none piles up."""
    return path.with_name(f".{path.name}.ddpdoctor-new")


def journal_of(path: Path) -> Path:
    """Name the journal of a file."""
    return path.with_name(f".{path.name}.ddpdoctor-journal")
