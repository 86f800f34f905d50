"""What the names of attributes and variables say: statistics, weights of classes, banks of samples."""

from __future__ import annotations

import re
from typing import Any

STATISTIC = re.compile(r"mean|std|var|scale|center|centre|centroid|proto|embed|codebook|basis|proj|freq|mu_?$|sigma_?$")
"""In the name of an attribute that samples are computed with; others hold samples mostly, or what was computed last."""
WEIGHTS = re.compile(r"weights?$|alphas?$")
"""In the name of a variable that a loss can weigh classes by."""
CLASSES = 10_000  # that a loss weighs
BANKS = re.compile(r"queue|bank|memory|negatives|(^|_)keys?$")
"""In the name of a variable that embeddings can be compared with."""
PLANE = 2  # dimensions of a bank of samples


def is_told(name: str, value: Any) -> bool:
    """Whether what a variable holds is told, though no object holds it: it is named like a statistic, or can weigh."""
    return bool(STATISTIC.search(name)) or _can_weigh(name, value) or is_bank(name, value)


def is_bank(name: str, value: Any) -> bool:
    """Whether embeddings can be compared with what a name holds: rows of numbers."""
    return BANKS.search(name) is not None and len(value.shape) == PLANE and not STATISTIC.search(name)


def _can_weigh(name: str, value: Any) -> bool:
    """Whether a loss can weigh classes by what a name holds: a number for each, or one for that of two."""
    few = not value.shape or (len(value.shape) == 1 and value.shape[0] <= CLASSES)
    return WEIGHTS.search(name) is not None and few
