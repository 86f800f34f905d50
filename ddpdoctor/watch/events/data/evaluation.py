"""Evaluations: what was sent in them, what is added up, once or twice, and what functions return of it."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedTwice(Event):
    """A tensor that was added up over all ranks at ``first`` is added up again, and nobody has written to it between.

    ``norm`` is that of what this rank gives the second time. ``site`` is the second line.
    """

    first: Site | None
    elements: int
    norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReturned(Event):
    """A function in which the ranks have reduced or gathered, of an evaluation, has returned, the ``number``-th time.

    ``values`` are the numbers in what it returns, by where they are: ``[1]`` of a tuple, ``['loss']`` of a dictionary;
    of small tensors it is a projection. ``site`` is the line that returns.
    """

    number: int
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated(Event):
    """A pass that evaluated has ended, and this process trains again, or gives up its process group (``at_end``).

    ``sent`` are the communications since the pass began, barriers aside: operation, reduction, elements, file, line.
    ``complete``: the pass ran to its end. ``site`` is the for loop. ``given`` is, for each communication of one number,
    that number, as this rank gave it; None for any other.
    """

    loader: int
    number: int
    sent: tuple[tuple[str, str, int, str, int], ...]
    complete: bool
    at_end: bool
    given: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedByHand(Event):
    """A model that is trained was evaluated without a loader, the ``number``-th time.

    ``rows`` are checksums of the first rows that it was given; ``sent``, ``at_end`` and ``given`` are as in Evaluated;
    ``callers`` are the lines that led to the first forward, innermost first: file, line and function.
    """

    number: int
    rows: tuple[float, ...]
    sent: tuple[tuple[str, str, int, str, int], ...]
    at_end: bool
    callers: tuple[tuple[str, int, str], ...]
    given: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed(Event):
    """A few numbers of each rank are about to be added up over all of them by a line of the user's, seen there first.

    ``callers`` are the lines that led there, innermost first: file, line and function of each. ``site`` is the line.
    ``given`` is the number that this rank gives, where it is one, and lies on the CPU.
    """

    operation: str
    callers: tuple[tuple[str, int, str], ...]
    elements: int = 1
    given: float | None = None
