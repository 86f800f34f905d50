"""The arithmetic of shares: which samples came to several ranks, and which were counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.examine.loader.facts import Index, RankLoader

SHARED = 0.8  # of the samples: drop_last leaves a few out, a right share is a half at most
FEW = 2  # samples that ended streams have at least to be compared, and
SEVERAL = 4  # streams of which only the beginning is known


@dataclass(frozen=True, slots=True)
class Shares:
    """What the ranks have of an epoch.

    ``repeated`` are the samples on more than one rank, ``extra`` is how many draws there were beyond one for each
    sample, ``distinct`` counts the different samples, ``read`` the draws that were read on each rank at most.
    """

    repeated: tuple[Index, ...]
    extra: int
    distinct: int
    read: int


def compare_shares(drawn: Sequence[Sequence[Index]]) -> Shares:
    """Compare what each rank drew in an epoch."""
    ranks = Counter(index for indices in drawn for index in set(indices))
    return Shares(
        repeated=tuple(sorted((index for index, number in ranks.items() if number > 1), key=_by_number)),
        extra=sum(map(len, drawn)) - len(ranks),
        distinct=len(ranks),
        read=max(map(len, drawn), default=0),
    )


def _by_number(index: Index) -> tuple[bool, Index]:
    return isinstance(index, str), index


@dataclass(frozen=True, slots=True)
class Likeness:
    """Streams that are the same: so many samples of them, from the first on or only as sets."""

    samples: int
    same_order: bool


def likeness(streams: Sequence[tuple[str, ...]], *, ended: bool, repeats: int = 1) -> Likeness | None:
    """Whether streams of digests are the same; None where they are not, or that is not sure.

    ``ended`` says that they were read to their end: only then can the same samples in another order be told from
    samples that occur by chance in both. ``repeats`` is how often a stream can repeat each sample: once for each
    worker, if these do not split it.
    """
    shortest = min(map(len, streams))
    if shortest < (FEW if ended else SEVERAL) or len(streams) == 1:
        return None
    beginnings = {stream[:shortest] for stream in streams}
    if len(beginnings) == 1:
        return Likeness(shortest, same_order=True) if _distinct(streams[0][:shortest], repeats) else None
    sets = [set(stream) for stream in streams]
    alike = all(shared_part(sets[0], other) >= SHARED for other in sets[1:])
    if ended and shortest >= SEVERAL and alike and all(_distinct(stream, repeats) for stream in streams):
        return Likeness(len(set.intersection(*sets)), same_order=False)
    return None


def _distinct(stream: tuple[str, ...], repeats: int) -> bool:
    """Whether equality with this stream proves anything: constants and labels repeat."""
    return len(set(stream)) >= max(FEW, len(stream) / (2 * repeats))


def shared_part(one: AbstractSet[object], other: AbstractSet[object]) -> float:
    """Return the part of the smaller set that the other has too."""
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0


def each_two(ranks: tuple[RankLoader, ...]) -> Iterator[tuple[RankLoader, RankLoader]]:
    """Yield each two ranks."""
    for at, one in enumerate(ranks):
        for other in ranks[at + 1 :]:
            yield one, other
