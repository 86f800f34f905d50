"""Signs that Slurm started the ranks, and what Lightning says where it finds too few GPUs."""

from __future__ import annotations

import re

SLURM = r"\bSLURM_\w+|slurmstepd|\bsrun\b|\bsbatch\b|#SBATCH|SLURM auto-requeueing|SLURMEnvironment"
ORDINAL = r"(?:CUDA|HIP) error: invalid device ordinal|cuda runtime error \(\d+\) : invalid device ordinal"
REQUESTED = r"You requested [Gg][Pp][Uu]s?: (\[[\d, ]*\])"
FOUND = r"But your machine only has: (\[[\d, ]*\])"


def each_sees_one(failed: frozenset[int]) -> bool:
    """Whether the ranks that failed are all but rank 0; 1 and 2 alone prove little."""
    return len(failed) > 2 and failed == set(range(1, max(failed) + 1))  # noqa: PLR2004 - see above


def indices(text: str) -> tuple[int, ...]:
    """Read ``[0, 1]``."""
    return tuple(map(int, re.findall(r"\d+", text)))
