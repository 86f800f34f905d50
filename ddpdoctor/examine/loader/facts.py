"""What the data checks read: the user's loader, as it was on each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Index = int | str  # a key that is no number goes by its repr


@dataclass(frozen=True, slots=True)
class RankSampler:
    """What a sampler says of itself; None for what it does not say.

    ``around`` names the samplers from the outermost to the innermost. ``standard`` is a class of torch's own.
    """

    kind: str
    around: tuple[str, ...]
    standard: bool
    replicas: int | None = None
    rank: int | None = None
    shuffle: bool | None = None
    seed: int | None = None
    drop_last: bool | None = None
    replacement: bool = False
    has_set_epoch: bool = False
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """An epoch's indices as the sampler gave them, and the sizes of its batches.

    ``complete`` is False when reading ended before the sampler did: then nothing is known of the rest.
    """

    indices: tuple[Index, ...]
    sizes: tuple[int, ...]
    complete: bool


def same_order(orders: Sequence[Order]) -> bool:
    """Whether orders are the same, as far as they were read."""
    length = min((len(order.indices) for order in orders if not order.complete), default=None)
    return len({order.indices[:length] for order in orders}) == 1


@dataclass(frozen=True, slots=True)
class Probe:
    """One sample, fetched twice with the same seed: digests of its parts; ``rich`` parts are more than a label."""

    index: int
    first: tuple[str, ...]
    second: tuple[str, ...]
    rich: tuple[bool, ...]

    @property
    def fixed(self) -> tuple[str | None, ...]:
        """The digests of the parts that came out the same both times, None for the others."""
        return tuple(one if one == two else None for one, two in zip(self.first, self.second, strict=False))


@dataclass(frozen=True, slots=True)
class Contents:
    """What the loader really yielded: digests by worker, in order, and the number of batches.

    ``whole_batches`` says that a digest is that of a batch, not of a sample.
    """

    samples: tuple[tuple[int, str], ...]
    batches: int
    complete: bool
    whole_batches: bool

    def digests(self) -> tuple[str, ...]:
        """Return the digests in the order of the loader."""
        return tuple(digest for _, digest in self.samples)

    def by_worker(self, workers: int) -> list[tuple[str, ...]]:
        """Return each worker's digests."""
        return [tuple(digest for by, digest in self.samples if by == worker) for worker in range(workers)]


@dataclass(frozen=True, slots=True)
class RankLoader:
    """The loader on one rank.

    ``plain`` are two epochs as the loader gives them, ``told`` two after set_epoch(1) and set_epoch(2); both are
    empty where the loader does not choose its samples by indices: there ``contents`` tells what it yielded.
    ``subset`` gives, where the data set is a Subset, the indices of the data set below it; ``probes`` are of that,
    and end where fetching a sample ``raised`` an error; ``uncollated`` is what ``collate_fn`` raised for a first batch.
    ``drawn`` are the digests of one sample, fetched twice with no seed in between; ``in_workers`` those of one sample
    fetched several times in each of two workers. ``rows`` tells that a list or a data set was given, and no loader.
    ``generators`` are those that the data set holds: where they are in it, and what makes another one.
    ``seeded_by`` is a worker_init_fn that seeds by the worker's number alone: its name, file, line and numbers.
    ``takes_share``: a sampler of the loader's holds this rank and the number of ranks; ``draws_at`` are the class, file
    and line of the one that is not torch's. ``order_of_process``: they draw from generators of the process, which the
    factory has not seeded, but the training can.
    """

    rank: int
    kind: str
    dataset: str
    iterable: bool
    length: int | None
    batches: int | None
    batch_size: int | None
    drop_last: bool
    workers: int
    sampler: RankSampler | None
    plain: tuple[Order, ...] = ()
    told: tuple[Order, ...] = ()
    subset: tuple[int, ...] | None = None
    base_length: int | None = None
    contents: Contents | None = None
    probes: tuple[Probe, ...] = ()
    raised: str = ""
    uncollated: str = ""
    drawn: tuple[tuple[str, ...], ...] = ()
    in_workers: tuple[tuple[str, ...], ...] = ()
    sampler_rank_on_other_nodes: int | None = None
    rows: bool = False
    generators: tuple[tuple[str, str], ...] = ()
    seeded_by: tuple[str, str, int, str] | None = None
    persistent: bool = False
    takes_share: bool = False
    draws_at: tuple[str, str, int] = ("", "", 0)
    order_of_process: bool = False

    @property
    def order(self) -> Order:
        """The first epoch as the loader gives it."""
        return self.plain[0]

    @property
    def repeats(self) -> bool:
        """Whether the two epochs, as the loader gives them, have the same order."""
        return same_order(self.plain)

    @property
    def reacts(self) -> bool:
        """Whether set_epoch changes the order."""
        return len(self.told) > 1 and not same_order(self.told)

    def samples(self, order: Order | None = None) -> tuple[Index, ...]:
        """Return the samples of an epoch, by default the first, by their index in the data set below all Subsets."""
        indices = (order or self.order).indices
        subset = self.subset
        if subset is None or not all(isinstance(index, int) and index < len(subset) for index in indices):
            return indices
        return tuple(subset[index] for index in indices if isinstance(index, int))

    def counted(self) -> tuple[int, bool]:
        """Return the number of batches that were seen, and whether that was the whole epoch."""
        if self.plain:
            return len(self.order.sizes), self.order.complete
        return (self.contents.batches, self.contents.complete) if self.contents else (0, False)
