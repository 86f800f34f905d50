"""Which signals a process has handlers for, as the kernel tells it. Source: proc(5), "/proc/pid/status"."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path


def handled(pid: int) -> AbstractSet[int] | None:
    """Return the numbers of the signals that have a handler; None where that is not known."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(int(each.split()[1], 16) for each in lines if each.startswith("SigCgt:"))
        return {each for each in range(1, caught.bit_length() + 1) if caught >> (each - 1) & 1}
    return None
