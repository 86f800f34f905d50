"""Modules that a training calls beside what its optimizers hold, as all ranks have them in several steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import StepFingerprinted, Training, Used

from ..._ledgers.sheets import differ
from .._alike import without_parallelism

if TYPE_CHECKING:
    from ..._ledgers.sheets import Print


@dataclass(frozen=True)
class Seen:
    """One tensor of a module, by step and rank."""

    name: str
    is_parameter: bool
    prints: tuple[tuple[Print | None, ...], ...]

    @property
    def differs(self) -> bool:
        """Whether the ranks have something else before the last step."""
        return differ(self.prints[-1])


@dataclass(frozen=True)
class Module:
    """A module that all ranks have called before each of some steps."""

    used: Used
    tensors: tuple[Seen, ...]

    @property
    def parameters(self) -> list[Seen]:
        """Return its parameters."""
        return [each for each in self.tensors if each.is_parameter]

    def changes(self) -> list[int]:
        """Count by rank how often a parameter has changed from one of the steps to the next."""
        return self._changes(None)

    def just_changed(self, times: int) -> bool:
        """Whether one rank has its parameters changed so often since the last step, and none had before."""
        return max(self.changes(), default=0) == times > max(self._changes(-1), default=0)

    def _changes(self, end: int | None) -> list[int]:
        tables = [list(zip(*each.prints[:end], strict=True)) for each in self.parameters]
        ranks = range(len(tables[0]) if tables else 0)
        steps = range(len(self.tensors[0].prints[:end]) - 1)
        return [sum(any(table[rank][at] != table[rank][at + 1] for table in tables) for at in steps) for rank in ranks]


def modules(event: StepFingerprinted, training: Training, least: int) -> list[Module]:
    """Return what all ranks have called before this compared step and those before it; none before ``least`` of them.

    Nor where the ranks do not train one model on samples of their own.
    """
    now = without_parallelism(event, training)
    if not now:
        return []
    found = []
    before = [each for each in training.before(event, optimizer=event.optimizer) if each.number < event.number]
    past = [ranks for each in before if (ranks := without_parallelism(each, training))]
    for key in _keys(now):
        steps = [now]
        for ranks in past:
            if key not in _keys(ranks):
                break
            steps.append(ranks)
        if len(steps) >= least:
            found.append(_module(key, steps[::-1]))
    return found


Key = tuple[str, tuple[str, ...], tuple[int, ...]]


def _keys(ranks: dict[int, StepFingerprinted]) -> list[Key]:
    """Return the modules that each rank has called once, by class, names and sizes."""
    counts = [Counter((each.kind, each.names, each.sizes) for each in rank.used) for rank in ranks.values()]
    return [key for key in counts[0] if all(count[key] == 1 for count in counts)]


def _module(key: Key, steps: list[dict[int, StepFingerprinted]]) -> Module:
    table = [[_used(key, rank) for rank in ranks.values()] for ranks in steps]
    used = table[-1][0]
    tensors = tuple(
        Seen(name, at < used.parameters, tuple(tuple(each.prints[at] for each in row) for row in table))
        for at, name in enumerate(used.names)
    )
    return Module(used, tensors)


def _used(key: Key, step: StepFingerprinted) -> Used:
    return next(each for each in step.used if (each.kind, each.names, each.sizes) == key)
