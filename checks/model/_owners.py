"""Optimizers of which each rank's holds other parameters, as ZeRO-1 by hand has them: a step, with all ranks' parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import OthersFingerprinted, ParametersHeld, StepFingerprinted, Training

from .._ledgers.ledger import built, of_all_ranks
from .._ledgers.sheets import EQUAL, Line, Print, Sheet, are_equal


@dataclass(frozen=True)
class Column:
    """One parameter in a step, by rank: what each had computed, and what each held before the step."""

    name: str
    size: int
    owner: int | None
    local: tuple[Print | None, ...]
    values: tuple[Print | None, ...]
    given: Print | None

    @property
    def line(self) -> Line:
        """The same as of an optimizer that all ranks have: its owner steps for them."""
        given = (self.given,) * len(self.local)
        return Line(self.name, self.size, -1, self.same, self.local, given, 1)

    @property
    def same(self) -> bool:
        """Whether all ranks have the parameter alike."""
        return are_equal(self.values, EQUAL)


@dataclass(frozen=True)
class SharedOut:
    """A step of optimizers that hold parts of one model, on all ranks of the job."""

    ranks: dict[int, StepFingerprinted]
    held: ParametersHeld
    columns: tuple[Column, ...]

    @property
    def sheet(self) -> Sheet:
        """The step as of one optimizer."""
        owned = tuple(each.line for each in self.columns if each.owner is not None)
        return Sheet(self.held, self.ranks, owned, sum(each.size for each in owned))

    @property
    def telling(self) -> list[Column]:
        """The parameters that a rank steps, and whose gradients all ranks have computed differently."""
        return [each for each in self.columns if each.owner is not None and each.line.tells]


def shared_out(event: OthersFingerprinted, training: Training, least: int) -> list[SharedOut]:
    """Return the compared steps up to this one, oldest first, once there are ``least`` of them; else none."""
    numbers = {each.number for each in training.of(OthersFingerprinted, pid=event.pid, optimizer=event.optimizer)}
    found = [_step(event, number, training) for number in sorted(numbers) if number <= event.number]
    whole = [each for each in found if each is not None]
    told = found and found[-1] is not None and len(whole) >= least
    return whole if told and not any(each.sheet.is_parallel_otherwise for each in whole) else []


def _step(event: OthersFingerprinted, number: int, training: Training) -> SharedOut | None:
    own = next(iter(training.of(StepFingerprinted, pid=event.pid, optimizer=event.optimizer, number=number)), None)
    ranks = of_all_ranks(own, training) if own is not None else {}
    beside = {each.rank: each for each in training.of(OthersFingerprinted, optimizer=event.optimizer, number=number)}
    held = {rank: built(each, training) for rank, each in ranks.items()}
    if not ranks or set(ranks) - set(beside):
        return None
    parts = [_Part(each, one, beside[rank]) for rank, each in ranks.items() if (one := held[rank]) is not None]
    if len(parts) < len(ranks) or not _is_shared_out(parts):
        return None
    return SharedOut(ranks, parts[0].held, tuple(_columns(parts)))


@dataclass(frozen=True)
class _Part:
    """What one rank has told of a step."""

    step: StepFingerprinted
    held: ParametersHeld
    beside: OthersFingerprinted

    def of(self, name: str) -> tuple[Print | None, Print | None]:
        """Return what the rank has computed of a parameter's gradient, and the parameter."""
        if name in self.held.names:
            at = self.held.names.index(name)
            return self.step.local[at], self.step.values[at]
        at = self.beside.names.index(name)
        return self.beside.local[at], self.beside.values[at]


def _is_shared_out(parts: list[_Part]) -> bool:
    """Whether no two ranks hold the same parameter, and each computes gradients of the whole."""
    names = [name for each in parts for name in each.held.names]
    wholes = {frozenset((*each.held.names, *each.beside.names)) for each in parts}
    plain = all(not each.held.shards and each.held.names for each in parts)
    return plain and len(names) == len(set(names)) and len(wholes) == 1


def _columns(parts: list[_Part]) -> Iterator[Column]:
    sizes = {name: size for each in parts
             for name, size in zip((*each.held.names, *each.beside.names), (*each.held.sizes, *each.beside.sizes),
                                   strict=True)}  # fmt: skip
    for name, size in sizes.items():
        owner = next((at for at, each in enumerate(parts) if name in each.held.names), None)
        given = parts[owner].step.given[parts[owner].held.names.index(name)] if owner is not None else None
        told = [each.of(name) for each in parts]
        yield Column(name, size, owner, tuple(a for a, _ in told), tuple(b for _, b in told), given)
