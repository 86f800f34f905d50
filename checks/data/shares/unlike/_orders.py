"""What two ranks hold of one data set, compared by its samples."""

from __future__ import annotations

from ddpdoctor.check import (
    DataSeen,
    Evidence,
    Fix,
    Place,
)

from ._split_in_ranks import SEEDED_DRAWS
from ._split_mended import SEED


def place_of(lines: list[Evidence]) -> Place | None:
    """Return the line that splits, where it is the only one."""
    file, _, line = lines[0].source.rpartition(":") if len(lines) == 1 else ("", "", "")
    return Place(file=file, line=int(line)) if file else None


def in_its_words(lines: list[Evidence], fix: Fix) -> Fix:
    """Return the fix of the one line that splits; the general one where there are several, or none."""
    if len(lines) != 1:
        return fix
    code, added = lines[0].seen, lines[0].expected
    if added.startswith((*SEEDED_DRAWS.values(),)):
        return Fix("draw the order with the same seed on all ranks", diff=f"-{code}\n+{added}")
    return Fix(fix.summary, diff=f"-{code}\n+{code.removesuffix(')')}, {added})")


def of_the_kind(seen: list[DataSeen]) -> Fix | None:
    """Return how datasets of Hugging Face are split alike; None for other data sets."""
    return SEED if all(each.kind == HUGGING_FACE for each in seen) else None


def ordered_differently(seen: list[DataSeen]) -> bool:
    """Whether all have the same entries, and not in the same order."""
    known = all(each.listed for each in seen)
    return known and len({each.members for each in seen}) == 1 and len({each.listed for each in seen}) > 1


def overlap(seen: list[DataSeen]) -> bool:
    """Whether a part of the entries, not all, are the same."""
    if len({each.name for each in seen}) > 1 or any(len(each.least) < TELLING for each in seen):
        return False
    first, *others = (set(each.least) for each in seen)
    return any(SOME * len(first) <= len(first & each) < ALL * len(first) for each in others)


HUGGING_FACE = "datasets"
SOME, ALL = 0.2, 0.98  # of the entries
TELLING = 8  # entries: fewer tell nothing
