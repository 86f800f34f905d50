"""The line, or the file, that an event of a training stands at, for findings that are of no line of their own."""

from __future__ import annotations

from ddpdoctor.check import Joined, OptimizerSeen, Place, StepFingerprinted, Training, Wrapped, place


def line_of_last(kind: type[Joined | OptimizerSeen | StepFingerprinted | Wrapped], training: Training) -> Place:
    """Return the line of the last event of a type, such as that which wraps the model; no place where none is known."""
    return next((place(each.site) for each in reversed(training.of(kind)) if each.site is not None), Place())


def file_of_first_step(event: StepFingerprinted, training: Training) -> str:
    """Return the file that makes the first step, on rank 0, once; empty for other events, and under a framework."""
    first = event.rank == 0 and event.number == 1 and not event.optimizer
    return event.site.file if first and event.site is not None and training.framework is None else ""
