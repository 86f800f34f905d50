"""Which process has started another one, as Linux tells it."""

from __future__ import annotations

from pathlib import Path


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 where it has none that is seen from here.

    Raises:
        OSError: there is no such process, or no /proc.
    """
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
