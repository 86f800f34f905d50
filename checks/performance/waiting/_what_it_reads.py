"""What is looked at where one rank alone loads slowly."""

from __future__ import annotations


def look_at_what_it_reads(rank: int) -> str:
    """Return what to do about a rank whose data take longer."""
    return f"find out what rank {rank} reads that the others do not: its files, its disk, the sizes of its samples"
