"""What the source of a watched training says for certain, and no event shows, once the watch has found nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from ddpdoctor.facets import Check, Instrument
from ddpdoctor.findings import Severity
from ddpdoctor.lint.run import Wanted, lint
from ddpdoctor.watch.dispatcher import Found
from ddpdoctor.watch.events import Joined, StepFingerprinted, Wrapped
from ddpdoctor.watch.training import Training

SEVERAL = 2  # ranks


def found_in_source(trainings: Iterable[Training], checks: Iterable[Check]) -> Iterator[Found]:
    """Yield the errors in the files that trained on several ranks, of checks that look at a source and at no event.

    Errors alone: what is a matter of taste, or of another start, is for ``ddpdoctor lint``.
    """
    files = sorted({file for training in trainings if training.world_size >= SEVERAL for file in _files(training)})
    asked = tuple(each for each in checks if each.of(Instrument.LINT) and not each.of(Instrument.WATCH))
    for each in lint([Path(file) for file in files], Wanted(asked)).found if files else ():
        if each.is_certain and (each.finding.severity or each.check.severity) is Severity.ERROR:
            yield Found(each.check, replace(each.finding, fix=replace(each.finding.fix, edits=())))


def _files(training: Training) -> Iterator[str]:
    """Yield the files that make the group, wrap a model, or step."""
    for event in (*training.of(Joined), *training.of(Wrapped), *training.of(StepFingerprinted)):
        if event.site is not None and Path(event.site.file).is_file():
            yield event.site.file
