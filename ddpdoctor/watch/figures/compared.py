"""What a watch has compared between ranks, in one clause: so that its silence means something."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.frameworks import DEEPSPEED
from ddpdoctor.report.verdict import number_of
from ddpdoctor.watch.events import (
    Drew,
    EpochStarted,
    Evaluated,
    FileOpened,
    OthersFingerprinted,
    ParametersHeld,
    Sharded,
    StepFingerprinted,
    WeightsFingerprinted,
    Wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddpdoctor.watch.events import Event
    from ddpdoctor.watch.training import Training

EQUAL = 1e-3  # of the norm
NAMED = 3  # parameters
ALONE = "; no rank sent the others a tensor: each trained a model of its own"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an optimizer, of all ranks that were seen."""

    ranks: tuple[StepFingerprinted, ...]

    @property
    def number(self) -> int:
        """The step's number, from 1."""
        return self.ranks[0].number

    def is_equal(self, what: str) -> bool:
        """Whether the ranks' fingerprints are the same."""
        columns = zip(*(getattr(each, what) for each in self.ranks), strict=False)
        return all(_alike(column) for column in columns)

    def is_finite(self, what: str) -> bool:
        """Whether no fingerprint of any rank has NaN or an infinite number."""
        return all(math.isfinite(each[-1]) for rank in self.ranks for each in getattr(rank, what) if each is not None)


def compared_text(trainings: Iterable[Training]) -> str:
    """Return how many steps were compared, and whether gradients and weights were equal, as one sentence."""
    trainings = tuple(trainings)
    steps = [step for training in trainings for step in compared_steps(training)]
    if not steps:
        return _without_steps(trainings)
    whole = max(len(each.given) for step in steps for each in step.ranks)
    shards = max((each.shards for training in trainings for each in training.of(ParametersHeld)), default=0)
    parts = [f"{number_of(shards, 'parameter')} sharded, of which each rank has its own part"] if shards else []
    if whole or not shards:
        told = [f"{what} {_verdict(steps, name)}" for what, name in (("gradients", "given"), ("weights", "values"))]
        held = [each for training in trainings for each in training.of(ParametersHeld)]
        alone = not shards and not _is_wrapped(held) and all(map(_is_alone, steps))
        why = _why_different(trainings) if any("different" in each for each in told) else ""
        parts.insert(0, f"{number_of(whole, 'parameter')}: {', '.join(told)}{ALONE if alone else why}")
    data = "; ".join(["", *_data(trainings)])
    return f"Compared {number_of(len(steps), 'step')}, {', and '.join(parts)}{data}."


def _without_steps(trainings: tuple[Training, ...]) -> str:
    """Return what was compared where no step was, of optimizers that hold the same on all ranks."""
    parts = {(each.pid, each.optimizer, each.number) for one in trainings for each in one.of(OthersFingerprinted)}
    if parts:
        count = number_of(len({each[1:] for each in parts}), "step")
        return f"Compared {count}: each rank's optimizer holds another part of the model."
    if any(training.of(StepFingerprinted) for training in trainings):
        return "No step could be compared between ranks."
    equal = [each for training in trainings for each in _weights(training)]
    if not equal:
        return "No optimizer was seen to step, and nothing was compared between ranks."
    told = "equal" if all(equal) else f"different in {equal.count(False)}"
    compared = f"weights before {number_of(len(equal), 'backward')} {told}"
    return f"No optimizer was seen to step: compared {compared}; gradients were not compared."


def _weights(training: Training) -> Iterator[bool]:
    """Yield, for each backward that all ranks have told the weights of, whether they were equal when it began."""
    for number in sorted({each.number for each in training.of(WeightsFingerprinted)}):
        ranks = training.complete(WeightsFingerprinted, number=number)
        if len({(each.names, each.sizes) for each in ranks.values()}) == 1:
            yield all(map(_alike, zip(*(each.values for each in ranks.values()), strict=True)))


def _why_different(trainings: tuple[Training, ...]) -> str:
    """Return why ranks hold different weights or gradients: rightly, or which they are."""
    if any(training.framework is DEEPSPEED for training in trainings):
        return " (DeepSpeed keeps a part on each rank)"
    if not any(training.of(Wrapped) or training.of(Sharded) for training in trainings):
        return " (no model is wrapped: ranks can hold different parts)"
    differ = dict(each for training in trainings for each in _different(training))
    kept = [name for name, managed in differ.items() if managed]
    if kept:
        return f" ({_listed(kept)}, of a model that DDP is to keep equal)"
    return f" ({_listed([*differ])}, which DDP does not average: each rank has its own)" if differ else ""


def _different(training: Training) -> Iterator[tuple[str, bool]]:
    """Yield the name of each parameter that the ranks have different values or gradients of, and if DDP has it."""
    held = {(each.pid, each.optimizer): each for each in training.of(ParametersHeld)}
    for step in compared_steps(training):
        known = held[step.ranks[0].pid, step.ranks[0].optimizer]
        for what in ("values", "given"):
            columns = zip(*(getattr(each, what) for each in step.ranks), strict=False)
            for name, managed, column in zip(known.names, known.managed, columns, strict=False):
                if not _alike(column):
                    yield name, managed >= 0


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def first_apart(training: Training) -> StepFingerprinted | None:
    """Return the first step in which the ranks' weights were found different; None where they are equal."""
    apart = [step.ranks[0] for step in compared_steps(training) if not step.is_equal("values")]
    return min(apart, key=lambda each: each.time, default=None)


def _data(trainings: tuple[Training, ...]) -> list[str]:
    """Return how much of the data was looked at: passes over loaders, evaluations, random draws, files."""
    passes = sum(_passes(training) for training in trainings)
    evaluated = sum(_most(training.of(Evaluated)) for training in trainings)
    draws = sum(_most(training.of(Drew)) for training in trainings)
    files = len({each.path for training in trainings for each in training.of(FileOpened, writes=True)})
    found = [f"{passes} pass{'' if passes == 1 else 'es'} over loaders"] if passes else []
    found += [number_of(evaluated, "evaluation")] if evaluated else []
    found += [f"random draws of {number_of(draws, 'step')}"] if draws else []
    return ([", ".join(found)] if found else []) + ([number_of(files, "file") + " written"] if files else [])


def _most(events: Sequence[Event]) -> int:
    """Count the events of the rank that has told most of them."""
    return max(Counter(each.rank for each in events).values(), default=0)


def _passes(training: Training) -> int:
    """Count the passes over loaders of the rank that has made most."""
    told = training.of(EpochStarted)
    return max((sum(each.rank == rank for each in told) for rank in {each.rank for each in told}), default=0)


def _is_wrapped(held: Iterable[ParametersHeld]) -> bool:
    return any(number >= 0 for each in held for number in each.managed)


def _is_alone(step: Step) -> bool:
    """Whether the ranks step with different gradients, and have sent each other no tensor so far."""
    sent = sum(elements for each in step.ranks for *_, elements in each.sent)
    return not step.is_equal("given") and not sent


def _verdict(steps: list[Step], name: str) -> str:
    equal, broken = sum(step.is_equal(name) for step in steps), sum(not step.is_finite(name) for step in steps)
    told = "equal" if equal == len(steps) else f"different in {len(steps) - equal}" if equal else "different"
    return f"{told} (not finite in {broken})" if broken else told


def compared_steps(training: Training) -> list[Step]:
    """List the steps of optimizers that hold the same parameters on all ranks: ZeRO's own hold each rank's part."""
    held = {(each.pid, each.optimizer): each for each in training.of(ParametersHeld)}
    found: dict[tuple[int, int], dict[int, StepFingerprinted]] = {}
    for event in training.of(StepFingerprinted):
        if event.rank is not None:
            found.setdefault((event.optimizer, event.number), {})[event.rank] = event
    return [
        Step(tuple(ranks.values()))
        for ranks in found.values()
        if len(ranks) > 1 and _is_one_model([held.get((each.pid, each.optimizer)) for each in ranks.values()])
    ]


def _is_one_model(held: Sequence[ParametersHeld | None]) -> bool:
    """Whether the ranks' optimizers hold the same: of a part for each rank, all names are different."""
    known = [each for each in held if each is not None]
    names = [name for each in known for name in each.names]
    parts = bool(names) and len(names) == len(set(names))
    return len(known) == len(held) and len({each.sizes for each in known}) == 1 and not parts


def _alike(prints: tuple[tuple[float, ...] | None, ...]) -> bool:
    known = [each for each in prints if each is not None]
    if len(known) < len(prints):
        return not known
    if not all(math.isfinite(each[-1]) for each in known):
        return not any(math.isfinite(each[-1]) for each in known)
    scale = max(each[-1] for each in known)
    return all(max(values) - min(values) <= EQUAL * scale for values in zip(*known, strict=True))
