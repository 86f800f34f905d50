"""Updates of a script's own, without an optimizer of torch's: what became of gradients between two backwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import Exchange, Training, WeightsFingerprinted

from .sheets import EQUAL, EXCLUSIVE, NEVER, Line, are_equal

if TYPE_CHECKING:
    from collections.abc import Iterator

Ranks = dict[int, WeightsFingerprinted]
TOLD = (2, 3)  # backwards, which tell of the ones before
HALF = 0.5  # of the gradients: whoever exchanges parameters sends as much
MOVED = 1e-3  # of the weights
ALIKE = 0.05  # of a move: what decays by itself decays by more where it is larger
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


def sent(event: WeightsFingerprinted) -> int:
    """Return how many elements a rank has given to communications so far."""
    return sum(elements for *_, elements in event.sent)


def sends(first: Ranks, last: Ranks, times: int = 1) -> bool:
    """Whether so much was sent in between that all weights, or gradients, can have gone out so often."""
    most = max(sent(last[rank]) - sent(first[rank]) for rank in first if rank in last)
    return most >= HALF * times * sum(next(iter(last.values())).sizes)


def reduces(first: Ranks, last: Ranks) -> bool:
    """Whether as much goes through all_reduce in each step as there are gradients."""
    often = calls(last, "all_reduce") - calls(first, "all_reduce")
    steps = number_of(last) - number_of(first)
    return often >= steps and sends(first, last, steps)


def calls(ranks: Ranks, operation: str) -> int:
    """Return how often a rank has called an operation so far."""
    return sum(calls for name, calls, _ in next(iter(ranks.values())).sent if name == operation)


def number_of(ranks: Ranks) -> int:
    """Return which backward it is."""
    return next(iter(ranks.values())).number


def is_parallel(ranks: Ranks) -> bool:
    """Whether there are groups of some ranks, communications within a model, or hooks."""
    names = {name for each in ranks.values() for name, *_ in each.sent}
    return bool(names & EXCLUSIVE) or any(each.subgroups or each.hooks for each in ranks.values())


def compared(event: WeightsFingerprinted, training: Training) -> list[Ranks]:
    """Return what all ranks have told of the same weights up to this backward; nothing where this one is incomplete."""
    numbers = sorted({each.number for each in training.of(WeightsFingerprinted) if each.number <= event.number})
    steps = [ranks for number in numbers if len(ranks := complete(number, training)) > 1]
    if not steps or number_of(steps[-1]) != event.number or is_parallel(steps[-1]):
        return []
    alike = len({(each.names, each.sizes) for ranks in steps for each in ranks.values()}) == 1
    return steps if alike else []


def reduction_of(steps: list[Ranks]) -> Exchange | None:
    """Return where a rank has given gradients to a reduction between two calls; None where that was not seen."""
    told = [each for ranks in steps for rank in ranks.values() for each in rank.exchanges]
    return next((each for each in told if each.what == "gradient" and each.operation in REDUCTIONS), None)


def same_moves(steps: list[Ranks], at: int) -> bool:
    """Whether a parameter has moved between the first and the last of these, on all ranks by the same."""
    moves = []
    for rank in steps[0]:
        first, last = (ranks[rank].values[at] for ranks in (steps[0], steps[-1]))
        if first is None or last is None:
            return False
        moves.append(tuple(now - then for now, then in zip(last[:-1], first[:-1], strict=True)))
        if math.hypot(*moves[-1]) <= MOVED * first[-1]:
            return False
    scale = max(math.hypot(*each) for each in moves)
    return all(max(values) - min(values) <= ALIKE * scale for values in zip(*moves, strict=True))


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
