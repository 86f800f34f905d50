"""The threads of a process, as the kernel lists them."""

from __future__ import annotations

from pathlib import Path


def thread_folders(pid: int) -> list[Path]:
    """Return the folder of each thread, the main one first; none of a process that has ended, or ends meanwhile."""
    try:
        return sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda each: int(each.name))
    except OSError:
        return []
