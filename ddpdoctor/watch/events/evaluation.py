"""What becomes of the numbers of an evaluation: what is added up twice, and what functions return of it."""

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
