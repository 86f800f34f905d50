"""The ledger of gradients, read: what became of each parameter's gradient between backward and the optimizer's step.

Fingerprints are linear, so that the mean of the ranks' is that of their mean: a few numbers tell whether a rank was
given the mean, a multiple of it, another rank's gradient or its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    GradientsInFlight,
    Joined,
    ParametersHeld,
    StepFingerprinted,
    Training,
    Wrapped,
)

from .sheets import EQUAL, NEVER, PARALLEL, Line, Sheet, are_equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

TOGETHER = {"all_reduce", "all_gather", "all_gather_into_tensor"}


def sheet(event: StepFingerprinted, training: Training) -> Sheet | None:
    """Return a step once all ranks of the job have told it; None before, and where they hold different things."""
    return training.once(_sheet, event)


def _sheet(event: StepFingerprinted, training: Training) -> Sheet | None:
    since = [joined.time for joined in training.of(Joined, pid=event.pid) if joined.time <= event.time]
    if not since or training.of(GradientsInFlight):
        return None
    told = training.of(StepFingerprinted, optimizer=event.optimizer, number=event.number)
    ranks = {each.rank: each for each in told if each.rank is not None and each.time >= since[-1]}
    first = training.of(StepFingerprinted, optimizer=event.optimizer, number=1)
    start = {each.rank: each for each in first if each.rank in ranks and each.time >= since[-1]}
    held = {rank: _held(each, training) for rank, each in ranks.items()}
    if len(ranks) < training.world_size or len(ranks) < 2 or len(start) < len(ranks):  # noqa: PLR2004 - nobody else
        return None
    one = next(iter(held.values()))
    if one is None or not one.sizes or any(each is None or each.sizes != one.sizes for each in held.values()):
        return None
    if _are_parts(held) or _came_later(one, start.values()):
        return None
    order = sorted(ranks)
    replicas = _replicas(one, [start[rank] for rank in order], beside=_is_beside_a_replica(held, training))
    steps = [ranks[rank] for rank in order]
    lines = tuple(_line(at, one, steps, replica=replica) for at, replica in enumerate(replicas))
    return Sheet(one, {rank: ranks[rank] for rank in order}, lines, sum(one.sizes))


def _are_parts(held: Mapping[int, ParametersHeld | None]) -> bool:
    """Whether no two ranks hold a parameter of the same name: each rank's optimizer has another part of a model."""
    names = [name for each in held.values() if each is not None for name in each.names]
    return len(names) == len(set(names))


def _came_later(held: ParametersHeld, start: Iterable[StepFingerprinted]) -> bool:
    """Whether parameters that nobody wraps were added after the first step: whether they were alike is not known."""
    return any(managed == NEVER for each in start for managed in held.managed[len(each.values) :])


def _line(at: int, held: ParametersHeld, steps: Sequence[StepFingerprinted], *, replica: bool) -> Line:
    """Return one parameter of a step; what no backward has added up was put there, from autograd.grad say."""
    local, given = tuple(each.local[at] for each in steps), tuple(each.given[at] for each in steps)
    computed = held.managed[at] != NEVER or any(each is not None for each in local)
    return Line(
        held.names[at],
        held.sizes[at],
        held.managed[at],
        replica,
        local if computed else given,
        given,
        steps[0].added[at],
        computed,
        all(any(sent.operation in TOGETHER for sent in each.exchanges) for each in steps),
    )


def of_all_ranks(event: StepFingerprinted, training: Training) -> dict[int, StepFingerprinted]:
    """Return a step by rank, once all ranks have told it that are seen from here; empty before.

    Empty too where what was compared may have been half exchanged.
    """
    if training.of(GradientsInFlight):
        return {}
    since = [joined.time for joined in training.of(Joined, pid=event.pid) if joined.time <= event.time]
    told = training.of(StepFingerprinted, optimizer=event.optimizer, number=event.number)
    ranks = {each.rank: each for each in told if each.rank is not None and since and each.time >= since[-1]}
    complete = len(ranks) >= max(len(training.by_rank(Joined)), 2)
    return dict(sorted(ranks.items())) if complete else {}


def built(event: StepFingerprinted, training: Training) -> ParametersHeld | None:
    """Return what is known of the optimizer of a step."""
    return _held(event, training)


def sheets(event: StepFingerprinted, training: Training) -> list[Sheet]:
    """Return all steps of the same optimizer that were compared, up to this one, oldest first."""
    before = [each for each in training.before(event, optimizer=event.optimizer) if each.number < event.number]
    found = [sheet(each, training) for each in (*reversed(before), event)]
    return [each for each in found if each is not None]


def data_parallel_sheets(event: StepFingerprinted, training: Training, least: int) -> list[Sheet]:
    """Return the compared steps up to this one, once there are ``least``; none where not all ranks train alike.

    Within subgroups of ranks, or in a model that communicates, gradients may differ on purpose.
    """
    steps = sheets(event, training) if event.number >= least else []
    return [] if len(steps) < least or any(each.is_parallel_otherwise for each in steps) else steps


def last_steps(training: Training, least: int) -> Iterator[StepFingerprinted]:
    """Yield the last compared step of each optimizer that has made so many."""
    last = {each.optimizer: each for each in training.of(StepFingerprinted)}
    yield from (each for each in last.values() if each.number >= least)


def _held(event: StepFingerprinted, training: Training) -> ParametersHeld | None:
    told = training.of(ParametersHeld, pid=event.pid, optimizer=event.optimizer)
    fitting = [each for each in told if len(each.names) == len(event.given) and each.time <= event.time]
    return fitting[-1] if fitting else None


def _is_beside_a_replica(held: Mapping[int, ParametersHeld | None], training: Training) -> bool:
    """Whether each rank's optimizer has the same modules of the same variables, beside a model that DDP keeps equal."""
    names = {(each.names, each.holders) for each in held.values() if each is not None}
    groups = [each.group for each in training.of(Wrapped)]
    return len(names) == 1 and bool(groups) and all(len(each) == training.world_size for each in groups)


def _replicas(held: ParametersHeld, start: Sequence[StepFingerprinted], *, beside: bool) -> list[bool]:
    """Return which parameters were the same on all ranks before the first step.

    What was added to the optimizer later DDP had made alike. A parameter whose elements are all equal tells only beside
    others: a bias begins as zeros in shards as well. Where the optimizer holds no others, as that of a loss with learnt
    weights, those of a model that DDP keeps equal are enough.
    """
    first = min(len(each.values) for each in start)
    equal = [at >= first or are_equal([each.values[at] for each in start], EQUAL) for at in range(len(held.names))]
    telling = [same for same, constant in zip(equal, held.constant, strict=True) if not constant]
    whole = all(telling) if telling else beside and all(equal)
    return [same and (whole or not constant) for same, constant in zip(equal, held.constant, strict=True)]


def have_parted(step: Sheet) -> bool:
    """Whether a rank had other weights than another before a step, by however little."""
    return any(len(set(column)) > 1 for column in zip(*(each.values for each in step.ranks.values()), strict=False))


def begin_alike(held: ParametersHeld, start: Sequence[StepFingerprinted]) -> bool:
    """Whether all ranks have begun with the same weights, of which some say so."""
    return all(len(each.values) == len(held.names) for each in start) and all(_replicas(held, start, beside=False))


def same_direction(one: Sheet, other: Sheet) -> bool:
    """Whether the gradients that rank 0 has computed point the same way in two steps, as those of one batch do."""
    pairs = [(a.local[0], b.local[0]) for a, b in zip(one.lines, other.lines, strict=False) if a.known and b.known]
    ours = [value for each, _ in pairs if each for value in each[:-1]]
    theirs = [value for _, each in pairs if each for value in each[:-1]]
    if len(ours) != len(theirs) or not any(ours) or not any(theirs):
        return True
    product = sum(a * b for a, b in zip(ours, theirs, strict=True))
    return product > PARALLEL * math.hypot(*ours) * math.hypot(*theirs)


def starts_apart(one: Sheet) -> list[str]:
    """Name the parameters that were different on the ranks before the first step."""
    return [line.name for line, constant in zip(one.lines, one.held.constant, strict=True)
            if not (line.replica or constant)]  # fmt: skip
