"""What optimizers are given, and how many steps they have made."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerLoaded(Event):
    """An optimizer was given a state by load_state_dict, for so many parameters.

    ``path`` is the file that it was read from, where that is known, and ``progress`` as in FileWritten.
    """

    optimizer: int
    kind: str
    parameters: int
    path: str = ""
    progress: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverStepped(Event):
    """So many backwards of a wrapped model, and no optimizer of this process has stepped."""

    backwards: int
    clock: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsAtEnd(Event):
    """How many steps were made with what an optimizer holds of a wrapped model.

    ``backwards`` and ``clock`` are as in StepFingerprinted.
    """

    optimizer: int
    model: int
    number: int
    backwards: int
    clock: int
