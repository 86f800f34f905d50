"""What all ranks must do alike once they are given the same gradients: states, frozen parameters, numbers of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ddpdoctor.check import ParametersHeld, StepFingerprinted, Training, Wrapping

from .._ledgers.ledger import built, of_all_ranks, sheets
from .._ledgers.sheets import EXCLUSIVE, NEVER, Line, Sheet

EQUAL = 1e-3  # of what is added up in another order
MESSAGES = {"send", "recv"}
SHARDING = {"ZeroRedundancyOptimizer"}  # each rank remembers its own part


def of_one_model(event: StepFingerprinted, training: Training) -> dict[int, StepFingerprinted]:
    """Return a step by rank, where all ranks are given the same gradients of the same parameters; else nothing."""
    ranks, held = of_all_ranks(event, training), built(event, training)
    if held is None or not ranks or any(each.subgroups for each in ranks.values()):
        return {}
    averaged = held.shards or any(number != NEVER for number in held.managed)
    if not averaged:
        averaged = any(line.shared for step in sheets(event, training) for line in step.lines)
    names = {each.names for each in map_built(ranks, training)}
    return ranks if averaged and len(names) == 1 else {}


def without_parallelism(event: StepFingerprinted, training: Training) -> dict[int, StepFingerprinted]:
    """Return the ranks of ``of_one_model``, unless they exchange what parallelism within a model, or gossip, does."""
    ranks = of_one_model(event, training)
    sent = {name for each in ranks.values() for name, *_ in each.sent}
    return {} if sent & EXCLUSIVE else ranks


def added_after_exchange(step: Sheet) -> list[Line]:
    """Return the parameters whose gradients a backward within a backward has added to once DDP had exchanged them.

    They were added to more often than others, and are not the same on all ranks.
    """
    if not all(each.nested for each in step.ranks.values()):
        return []
    counts = [each.added for each in step.lines if each.added]
    return [
        each
        for each in step.lines
        if each.apart and each.replica and each.managed != NEVER and each.added > min(counts)
    ]


def map_built(ranks: dict[int, StepFingerprinted], training: Training) -> list[ParametersHeld]:
    """Return what each rank's optimizer holds, as far as it was told."""
    return [held for each in ranks.values() if (held := built(each, training)) is not None]


def earlier(
    event: StepFingerprinted,
    training: Training,
    by_rank: Callable[[StepFingerprinted, Training], dict[int, StepFingerprinted]] = of_one_model,
) -> Iterator[dict[int, StepFingerprinted]]:
    """Yield the compared steps of the same optimizer before this one, by rank, latest first."""
    for other in training.before(event, optimizer=event.optimizer):
        if other.number < event.number and (ranks := by_rank(other, training)):
            yield ranks


def options_differ(ranks: dict[int, StepFingerprinted]) -> bool:
    """Whether learning rates or other options are not the same on all ranks."""
    return len({each.options for each in ranks.values()}) > 1


def frozen_differ(ranks: dict[int, StepFingerprinted]) -> bool:
    """Whether a parameter is trained on some ranks only."""
    return len({each.frozen for each in ranks.values()}) > 1


def counts_differ(ranks: dict[int, StepFingerprinted]) -> bool:
    """Whether a step has come at another point of the training on some rank.

    Collectives happen on all ranks together, so that their number is a clock that all share. gloo counts messages from
    rank to rank besides, of which the ranks have more or fewer by their place among the others: no clock then.
    """
    messages = any(name in MESSAGES for each in ranks.values() for name, *_ in each.sent)
    return not messages and len({each.clock for each in ranks.values()}) > 1


def states_differ(ranks: dict[int, StepFingerprinted], kind: str) -> str:
    """Return the key of what the optimizers of the ranks remember differently; empty where they are alike.

    Parts of a state that are shared out to the ranks are none of it, nor what is exchanged in the step itself.
    """
    if kind in SHARDING or any(each.when == "in the step" for rank in ranks.values() for each in rank.exchanges):
        return ""
    told = {rank: {key: (count, norm) for key, count, norm in each.state} for rank, each in ranks.items()}
    for key in dict.fromkeys(key for each in told.values() for key in each):
        found = [each.get(key, (0, 0.0)) for each in told.values()]
        counts = {count for count, _ in found}
        norms = [norm for count, norm in found if count]
        if counts == {max(counts), 0} and len(counts) > 1:
            return key
        known = len(counts) == 1 and all(map(math.isfinite, norms))
        if known and max(norms) - min(norms) > EQUAL * max(norms):
            return key
    return ""


def weights_apart(ranks: dict[int, StepFingerprinted]) -> bool:
    """Whether a parameter is not the same on all ranks."""
    columns = zip(*(each.values for each in ranks.values()), strict=False)
    return any(_apart([each[-1] for each in column if each is not None]) for column in columns)


def gradients_apart(ranks: dict[int, StepFingerprinted]) -> bool:
    """Whether the ranks' optimizers are given different gradients."""
    columns = zip(*(each.given for each in ranks.values()), strict=False)
    return any(_apart([each[-1] for each in column if each is not None]) for column in columns)


def states_alone_differ(event: StepFingerprinted, training: Training, kind: str) -> str:
    """Return what the optimizers remember differently before a step, where gradients and weights were equal so far."""
    ranks = of_one_model(event, training)
    if not any(each is not None for step in ranks.values() for each in step.given):
        return ""  # sparse gradients, of which nothing is known
    key = states_differ(ranks, kind) if ranks and not weights_apart(ranks) else ""
    if not key or options_differ(ranks) or counts_differ(ranks) or frozen_differ(ranks):
        return ""
    past = list(earlier(event, training))
    return "" if any(gradients_apart(each) or weights_apart(each) for each in past) else key


def _apart(norms: list[float]) -> bool:
    return bool(norms) and max(norms) - min(norms) > EQUAL * max(norms)


def in_another_order(training: Training) -> dict[int, Wrapping]:
    """Return by rank the model that was wrapped last, where all have the same names, in another order."""
    told = {rank: training.of(Wrapping, rank=rank) for rank in range(training.world_size)}
    if len({len(each) for each in told.values()}) != 1 or not all(told.values()):
        return {}
    last = {rank: each[-1] for rank, each in told.items()}
    orders = {tuple(name for name, _ in each.parameters) for each in last.values()}
    return last if len(orders) > 1 and len({frozenset(each) for each in orders}) == 1 else {}
