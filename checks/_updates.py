"""Updates of a script's own, without an optimizer of torch's: what became of gradients between two backwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import Exchange, Training, WeightsFingerprinted

from ._sheets import EQUAL, EXCLUSIVE, NEVER, Line, are_equal

Ranks = dict[int, WeightsFingerprinted]
TOLD = (2, 3)  # backwards, which tell of the ones before
HALF = 0.5  # of the gradients
REDUCTIONS = {"all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"}


@dataclass(frozen=True)
class Update:
    """One of them, on all ranks; ``ranks`` are what was told when the next backward began."""

    ranks: Ranks
    lines: tuple[Line, ...]

    @property
    def lines_that_tell(self) -> list[Line]:
        """The parameters whose gradients the ranks have computed differently."""
        return [line for line in self.lines if line.tells]

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """What rank 0 has sent since the backward."""
        return next(iter(self.ranks.values())).exchanges

    @property
    def elements(self) -> int:
        """How many numbers the parameters have."""
        return sum(line.size for line in self.lines)

    @property
    def reduced(self) -> int:
        """How many elements a rank has given to reductions after the backward."""
        return max(
            sum(each.elements for each in rank.exchanges if each.operation in REDUCTIONS)
            for rank in self.ranks.values()
        )

    @property
    def shares_gradients(self) -> bool:
        """Whether gradients were reduced, and no rank has another one than a multiple of the ranks' mean."""
        sent = sum(each.elements for each in self.exchanges if each.what == "gradient" and each.operation in REDUCTIONS)
        return sent >= HALF * self.elements and all(self.times_mean(line) for line in self.lines_that_tell)

    def times_mean(self, line: Line) -> float:
        """Return the largest multiple of the ranks' mean that a rank has of a gradient; 0 where one has none.

        The rank that updates a parameter may have clipped its gradient.
        """
        times = [line.times_mean(rank) for rank in range(len(self.ranks))]
        known = [each for each in times if each is not None]
        return max(known) if len(known) == len(times) else 0.0

    @property
    def is_plain(self) -> bool:
        """Whether nobody exchanges within the backward, in groups of some ranks, or from rank to rank."""
        return not any(
            each.subgroups
            or each.hooks
            or {name for name, *_ in each.sent} & EXCLUSIVE
            or any(sent.when == "in backward" for sent in each.exchanges)
            for each in self.ranks.values()
        )


def complete(number: int, training: Training) -> Ranks:
    """Return what all ranks have told of a backward that comes at the same point of the training on all of them."""
    found = {each.rank: each for each in training.of(WeightsFingerprinted, number=number) if each.rank is not None}
    whole = len(found) >= training.world_size > 1 and len({each.clock for each in found.values()}) == 1
    return dict(sorted(found.items())) if whole else {}


def apart(ranks: Ranks) -> list[int]:
    """Return the places of the parameters that are not the same on all ranks."""
    columns = zip(*(each.values for each in ranks.values()), strict=False)
    return [at for at, column in enumerate(columns) if None not in column and not are_equal(column, EQUAL)]


def updates(training: Training) -> list[Update]:
    """Return the updates that are known, of a model that nobody wraps; none before all ranks have told the last."""
    found = [*_updates(training)]
    return found if len(found) == len(TOLD) and all(each.is_plain for each in found) else []


def _updates(training: Training) -> Iterator[Update]:
    for number in TOLD:
        ranks = complete(number, training)
        if not ranks or len({(each.names, each.sizes) for each in ranks.values()}) > 1:
            return
        first = next(iter(ranks.values()))
        count = len(first.names)
        known = all(len(each.local) == len(each.given) == count for each in ranks.values())
        if not known or any(number != NEVER for number in first.managed):
            return
        lines = tuple(
            Line(
                first.names[at],
                first.sizes[at],
                NEVER,
                replica=True,
                local=tuple(each.local[at] for each in ranks.values()),
                given=tuple(each.given[at] for each in ranks.values()),
                added=1,
            )
            for at in range(count)
        )
        yield Update(ranks, lines)
