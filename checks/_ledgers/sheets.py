"""Lines of a sheet: what the ranks had of one parameter in a step that was compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddpdoctor.check import ANOTHERS, Exchange, ParametersHeld, StepFingerprinted

if TYPE_CHECKING:
    from collections.abc import Sequence

Print = tuple[float, ...]
EQUAL = 1e-3  # relative to the norm: what is equal is so to the last bit on like hardware
LIKE = 2e-2  # of a mean that is rounded to 16 bits
APART = 0.05  # gradients of different samples differ by much more
PARALLEL = 0.95  # cosine
NEVER = -1  # ParametersHeld.managed of a parameter that no wrapped model has
EXCLUSIVE = {"send", "recv", "all_to_all", "all_to_all_single"}
"""Operations of parallelism within a model, and of gossip: gradients that differ are no fault there."""


@dataclass(frozen=True)
class Line:
    """One parameter in one step, by rank in ascending order."""

    name: str
    size: int
    managed: int
    replica: bool
    local: tuple[Print | None, ...]
    given: tuple[Print | None, ...]
    added: int
    computed: bool = True
    """Whether a backward was seen to add up the gradient; else ``local`` is what the step is given."""
    exchanges: bool = False
    """Whether each rank has reduced or gathered something since the step before."""

    @cached_property
    def known(self) -> bool:
        """Whether each rank has a gradient that is not zero, and was seen to compute it."""
        return all(each is not None and each[-1] > 0 for each in (*self.local, *self.given))

    @cached_property
    def apart(self) -> bool:
        """Whether the ranks' optimizers are given different gradients."""
        return self.known and not are_equal(self.given, EQUAL)

    @cached_property
    def tells(self) -> bool:
        """Whether the ranks have computed different gradients, so that an exchange shows."""
        return self.known and not are_equal(self.local, APART)

    def computes_alike(self, tolerance: float) -> bool:
        """Whether all ranks have computed the same gradient."""
        return self.computed and self.known and are_equal(self.local, tolerance)

    @cached_property
    def shared(self) -> bool:
        """Whether all ranks are given the same, though they have computed different ones.

        Or though the script has put it there, once the ranks have exchanged something: what each has tried, and how
        good that was.
        """
        made_together = not self.computed and self.known and self.replica and self.exchanges
        return (self.tells or made_together) and not self.apart

    @cached_property
    def mean(self) -> Print:
        """The fingerprint of the mean of what the ranks have computed."""
        local = [each for each in self.local if each is not None]
        return tuple(sum(values) / len(local) for values in zip(*local, strict=True))

    def times_mean(self, rank: int) -> float | None:
        """Return which multiple of the mean a rank was given; None where it is none."""
        return _ratio(self.given[rank], self.mean)

    def times_given(self, rank: int) -> float | None:
        """Return which multiple of what the first rank was given another one was given; None where it is none."""
        return _ratio(self.given[rank], self.given[0])

    def times_own(self, rank: int, of: int | None = None) -> float | None:
        """Return which multiple of its own gradient, or of another rank's, a rank was given; None where it is none."""
        return _ratio(self.given[rank], self.local[rank if of is None else of])

    @property
    def own(self) -> bool:
        """Whether each rank was given what it has computed itself, or a multiple of it."""
        return self.apart and all(self.times_own(rank) is not None for rank in range(len(self.given)))

    @cached_property
    def unchanged(self) -> bool:
        """Whether each rank was seen to compute what it was given."""
        return self.computed and self.own


@dataclass(frozen=True)
class Sheet:
    """One step of an optimizer, on all ranks of the job."""

    held: ParametersHeld
    ranks: dict[int, StepFingerprinted]
    lines: tuple[Line, ...]
    elements: int

    @property
    def number(self) -> int:
        """The step's number, from 1."""
        return next(iter(self.ranks.values())).number

    @property
    def lines_that_tell(self) -> list[Line]:
        """The parameters whose gradients the ranks have computed differently."""
        return [line for line in self.lines if line.tells]

    def calls(self, operation: str) -> int:
        """Return how often rank 0 has called an operation so far."""
        return sum(calls for name, calls, _ in next(iter(self.ranks.values())).sent if name == operation)

    @property
    def sent(self) -> int:
        """How many elements a rank has sent so far."""
        return max(sum(elements for *_, elements in each.sent) for each in self.ranks.values())

    @property
    def is_parallel_otherwise(self) -> bool:
        """Whether there are subgroups of ranks, or communications within a model: gradients may then differ."""
        names = {name for each in self.ranks.values() for name, *_ in each.sent}
        return any(each.subgroups for each in self.ranks.values()) or bool(names & EXCLUSIVE)

    @property
    def sends_after_backward(self) -> int:
        """How many elements, neither parameters nor gradients of others, rank 0 sent between backward and the step."""
        first = next(iter(self.ranks.values()))
        return sum(each.elements for each in first.exchanges
                   if each.when == "after backward" and each.what not in {"parameter", ANOTHERS})  # fmt: skip

    def exchanged(self, what: str) -> list[Exchange]:
        """List what rank 0 gave gradients, or parameters, to."""
        return [each for each in next(iter(self.ranks.values())).exchanges if each.what == what]


def are_equal(prints: Sequence[Print | None], tolerance: float) -> bool:
    """Whether fingerprints are equal, measured by the largest norm."""
    known = [each for each in prints if each is not None]
    if len(known) < len(prints) or any(len(each) != len(known[0]) for each in known):
        return False
    scale = max(each[-1] for each in known)
    return all(max(values) - min(values) <= tolerance * scale for values in zip(*known, strict=True))


def differ(prints: Sequence[Print | None], tolerance: float = EQUAL) -> bool:
    """Whether fingerprints that are all there are not equal, measured by the largest norm; NaN is passed over."""
    known = [each for each in prints if each is not None]
    if not known or len(known) < len(prints):
        return False
    scale = max(each[-1] for each in known)
    return any(max(values) - min(values) > tolerance * scale for values in zip(*known, strict=False))


def _ratio(seen: Print | None, of: Print | None) -> float | None:
    return multiple_of(seen, of, LIKE)


def multiple_of(seen: Print | None, of: Print | None, tolerance: float) -> float | None:
    """Return by which factor one fingerprint is the other one; None where no factor fits."""
    if seen is None or of is None:
        return None
    ours, theirs = seen[:-1], of[:-1]
    square = sum(each * each for each in theirs)
    if not square:
        return None
    factor = sum(a * b for a, b in zip(ours, theirs, strict=True)) / square
    size = max(map(abs, ours))
    fits = all(abs(a - factor * b) <= tolerance * size for a, b in zip(ours, theirs, strict=True))
    return factor if fits and factor > 0 else None
