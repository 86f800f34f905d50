"""What watch facets of models share: one step of an optimizer, as all ranks saw it, and what of it differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpdoctor.check import (
    Bypassed,
    Evidence,
    Joined,
    OptimizerSeen,
    Site,
    SteppedWithinNoSync,
    StepSampled,
    SyncSkipped,
    Training,
    Wrapped,
)

GRADIENT = 1e-3  # relative: averaged gradients are equal to the last bit on like hardware, and to 1e-6 on unlike
PARAMETER = 1e-4
AVERAGING = {"allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "powerSGD_hook", "batched_powerSGD_hook"}


class Step(NamedTuple):
    """One step, by rank; ``names`` are those of the norms, ``wrapped`` is how the model was wrapped."""

    names: tuple[str, ...]
    wrapped: Wrapped
    ranks: dict[int, StepSampled]

    @property
    def number(self) -> int:
        """The step's number, from 1."""
        return next(iter(self.ranks.values())).number

    @property
    def when(self) -> str:
        """When the norms were taken."""
        closure = any(each.closure for each in self.ranks.values())
        return f"right {'after' if closure else 'before'} step {self.number}"

    @property
    def by_own_means(self) -> bool:
        """Whether a communication hook, or the script, exchanges what DDP would average."""
        return any(
            each.sent * 2 >= self.wrapped.elements or not {*filter(None, each.hook.split(", "))} <= AVERAGING
            for each in self.ranks.values()
        )


class Apart(NamedTuple):
    """A parameter for which the ranks have different fingerprints: the norm of each, that of a small one its own."""

    name: str
    norms: dict[int, float]

    def evidence(self, what: str, step: Step) -> Evidence:
        """Return what each rank has."""
        seen = ", ".join(f"{norm:.6g} on rank {rank}" for rank, norm in list(self.norms.items())[:8])
        return Evidence(f"fingerprint of {what} {self.name}: {seen}", "the same on all ranks", step.when)


def together(event: StepSampled, training: Training) -> Step | None:
    """Return a step once all ranks have told it that share the model's gradients and are seen from here."""
    since = [joined.time for joined in training.of(Joined, pid=event.pid) if joined.time <= event.time]
    wrapped = training.of(Wrapped, pid=event.pid, model=event.model)
    if event.model is None or not since or not wrapped:
        return None
    group = [rank for rank in training.by_rank(Joined) if rank in wrapped[-1].group]
    told = training.of(StepSampled, optimizer=event.optimizer, model=event.model, number=event.number)
    ranks = {
        each.rank: each
        for each in told
        if each.rank in group and each.time >= since[-1]  # of no run before a restart
    }
    names = {_names(each, training) for each in ranks.values()}
    if len(group) < 2 or len(ranks) < len(group) or len(names) > 1:  # noqa: PLR2004 - one rank compares with nobody
        return None
    return Step(names.pop(), wrapped[-1], {rank: ranks[rank] for rank in sorted(group)})


def _names(event: StepSampled, training: Training) -> tuple[str, ...]:
    seen = training.of(OptimizerSeen, pid=event.pid, optimizer=event.optimizer, model=event.model)
    return seen[-1].names if seen else ()


def earlier(event: StepSampled, training: Training) -> Iterator[Step]:
    """Yield the steps of the same optimizer that were compared before, latest first."""
    for other in training.before(event, optimizer=event.optimizer, model=event.model):
        if other.number < event.number and (step := together(other, training)):
            yield step


def gradients_apart(step: Step) -> Apart | None:
    """Find the first parameter with different gradients."""
    return _apart(step.names, {rank: each.gradients for rank, each in step.ranks.items()}, GRADIENT)


def parameters_apart(step: Step) -> Apart | None:
    """Find the first parameter that differs itself."""
    return _apart(step.names, {rank: each.parameters for rank, each in step.ranks.items()}, PARAMETER)


def strays_apart(step: Step) -> Apart | None:
    """Find the first parameter that came after wrapping and has different gradients."""
    names = {tuple(name for name, _, _ in each.unmanaged) for each in step.ranks.values()}
    if len(names) > 1:
        return None
    norms = {rank: tuple(norm for _, _, norm in each.unmanaged) for rank, each in step.ranks.items()}
    return _apart(names.pop(), norms, GRADIENT)


def _apart(names: Sequence[str], norms: dict[int, tuple[float | None, ...]], tolerance: float) -> Apart | None:
    for name, *values in zip(names, *norms.values(), strict=False):
        known = [value for value in values if value is not None and math.isfinite(value)]
        if len(known) == len(values) and max(known) - min(known) > tolerance * max(known):
            return Apart(name, dict(zip(norms, known, strict=True)))
    return None


def bypasses(step: Step) -> bool:
    """Whether no rank has called the wrapper since the step before."""
    return not any(each.forwards for each in step.ranks.values())


def unfinished(step: Step) -> bool:
    """Whether a parameter has no gradient that DDP waits for: of its bucket nothing was averaged.

    Seen where a closure computes the gradients, right after the step: else DDP refuses the next forward before a step
    is compared in which the weights have parted.
    """
    if step.wrapped.find_unused_parameters or step.wrapped.static_graph:
        return False
    waited = {*step.wrapped.trainable}
    return any(
        each.closure
        and any(name in waited and norm is None for name, norm in zip(step.names, each.gradients, strict=False))
        for each in step.ranks.values()
    )


def skips_sync(step: Step) -> bool:
    """Whether the last forward through the wrapper was within no_sync, on all ranks."""
    return all(each.forwards and not each.last_synced for each in step.ranks.values())


def within_no_sync(step: Step, last: Step | None, training: Training) -> int | None:
    """Return a step between two that were compared which all ranks made right after a forward in no_sync."""
    first = next(iter(step.ranks.values()))
    told = training.of(SteppedWithinNoSync, optimizer=first.optimizer, model=first.model)
    ranks = {each.rank: each.number for each in told if each.rank in step.ranks}
    numbers = set(ranks.values())
    fits = len(ranks) == len(step.ranks) and len(numbers) == 1 and last is not None
    return min(numbers) if fits and last is not None and last.number <= min(numbers) < step.number else None


def line(kind: type[Bypassed | SyncSkipped], step: Step, training: Training) -> Site | None:
    """Return the line that an event of the first rank names, or that of the step."""
    first = next(iter(step.ranks.values()))
    told = training.of(kind, pid=first.pid, model=first.model)
    return (told[-1].site if told else None) or first.site
