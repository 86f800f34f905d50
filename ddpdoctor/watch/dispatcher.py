"""Shows each event to the checks that watch for its type; the same finding is made once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.engine import Decisions, evaluate, result
from ddpdoctor.facets import Check, Facet, Instrument
from ddpdoctor.findings import Result, Status
from ddpdoctor.watch.trainings import Trainings

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding
    from ddpdoctor.watch.events import Event
    from ddpdoctor.watch.training import Training


DURATION = re.compile(r"\b\d[\d.]* (?:ms|s|min|h)\b")
"""What differs from look to look, of a finding that is the same."""


class Found(NamedTuple):
    """A finding and the check that made it."""

    check: Check
    finding: Finding


class Dispatcher:
    """All checks' watch facets, and the training that they look at."""

    def __init__(self, checks: Iterable[Check]) -> None:
        """Begin with no event seen."""
        self.trainings = Trainings()
        self._facets: dict[object, list[tuple[Check, Facet]]] = defaultdict(list)
        for check in checks:
            for facet in check.of(Instrument.WATCH):
                self._facets[facet.subject].append((check, facet))
        self.crashes: list[Result] = []
        """Of checks that crashed, each told once; a facet that crashed is asked nothing more."""
        self.asked: set[str] = set()
        """The codes of checks that had an event to look at."""
        self._made: set[tuple[str, str, str | None, int | None]] = set()

    def see(self, event: Event) -> Iterator[Found]:
        """Take up an event and yield what checks find in it, if it was not found before."""
        yield from self._found(event, self.trainings.add(event))

    def see_of(self, training: Training, event: Event) -> Iterator[Found]:
        """Take up an event that no process has told, and that is about a training; yield what was not found before."""
        training.add(event)
        yield from self._found(event, training)

    def _found(self, event: Event, training: Training) -> Iterator[Found]:
        for check, finding in self.ask(event, training):
            key = (check.code, DURATION.sub("", finding.message), finding.place.file, finding.place.line)
            if key not in self._made:
                self._made.add(key)
                yield Found(check, finding)

    def ask(self, event: Event, training: Training) -> Iterator[Found]:
        """Yield what checks find in an event of a training, found before or not."""
        inputs, decided = {"event": event, "training": training}, Decisions()
        facets = self._facets[type(event)]
        for pair in tuple(facets):
            check, facet = pair
            said = evaluate(check, facet, inputs.__getitem__, decided)
            if said.crash:
                facets.remove(pair)
                if check.code not in {each.code for each in self.crashes}:
                    self.crashes.append(result(check, Status.CRASHED, reason=said.crash))
            elif not said.not_run:
                self.asked.add(check.code)
            for finding in said.findings:
                yield Found(check, finding)
