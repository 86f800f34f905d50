"""What the data checks read: the user's loader, as it was on each rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ddpdoctor.check import NotRun
from ddpdoctor.probe.outcome import Raised


@dataclass(frozen=True, slots=True)
class Sampler:
    """A sampler's own word; None for what it does not say."""

    kind: str
    distributed: bool
    replicas: int | None
    rank: int | None
    shuffles: bool
    seed: int | None
    drops_last: bool
    has_set_epoch: bool
    draws_with_replacement: bool


@dataclass(frozen=True, slots=True)
class Source:
    """What the sources of the training say of set_epoch; ``commented`` is such a line that was commented out."""

    files: tuple[str, ...]
    calls_set_epoch: bool
    has_epoch_loop: bool
    commented: str
    sampler_line: tuple[str, int] | None
    frameworks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankLoader:
    """The loader on one rank.

    ``orders`` are the indices of two epochs as the loader comes, then of epochs 1 and 2 after set_epoch; empty where
    there are no indices. ``samples`` are (index, digests of the parts, digests when fetched again).
    ``in_workers`` are the digests of one sample, fetched twice, by worker. ``loaded`` are the digests of the batches
    that were loaded, empty for constant ones; ``complete`` tells whether they are a whole epoch.
    """

    rank: int
    kind: str
    dataset: str
    iterable: bool
    length: int | None
    batches: int | None
    workers: int
    sampler: Sampler | None
    orders: tuple[tuple[int, ...], ...]
    samples: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...]
    in_workers: tuple[tuple[tuple[str, ...], ...], ...] | None
    loaded: tuple[str, ...]
    complete: bool
    source: Source | None


@dataclass(frozen=True, slots=True)
class LoaderExam:
    """The loader on all ranks; ``refusal`` is what torch's DataLoader raised when the factory built it."""

    target: str
    ranks: tuple[RankLoader, ...]
    refusal: Raised | None = None

    @property
    def first(self) -> RankLoader:
        """Give rank 0's.

        Raises:
            NotRun: torch refused to build the loader.
        """
        if not self.ranks:
            raise NotRun("torch refused to build the loader")
        return self.ranks[0]

    def indexed(self) -> tuple[RankLoader, ...]:
        """Give the ranks' loaders where each chooses its samples by indices.

        Raises:
            NotRun: they do not, or torch refused to build the loader.
        """
        if not self.first.orders or not all(rank.orders for rank in self.ranks):
            raise NotRun("the loader does not choose its samples by indices")
        return self.ranks

    @property
    def same_data(self) -> bool | None:
        """Tell whether each index means the same sample on all ranks; None where that cannot be told.

        Compared are the parts of some samples that are the same when fetched twice.
        """
        if len({rank.length for rank in self.ranks}) > 1:
            return False
        fixed = [
            [
                tuple(one if one == two else "" for one, two in zip(first, second, strict=False))
                for _, first, second in rank.samples
            ]
            for rank in self.ranks
        ]
        if any(len(each) != len(fixed[0]) for each in fixed):
            return None
        told = False
        for samples in zip(*fixed, strict=True):
            for digests in zip(*samples, strict=False):
                if "" in digests:
                    continue
                told = True
                if len(set(digests)) > 1:
                    return False
        return True if told else None

    def times_seen(self) -> Counter[int]:
        """Count on how many ranks each index of the first epoch occurs, and how often."""
        return Counter(index for rank in self.ranks for index in rank.orders[0])
