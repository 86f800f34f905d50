"""Shows each event to the checks that watch for its type; the same finding is made once."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Check, Facet, Instrument
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from ddpdoctor.model import Finding
    from ddpdoctor.watch.events import Event


class Found(NamedTuple):
    """A finding and the check that made it."""

    check: Check
    finding: Finding


class Judge:
    """All checks' watch facets, and the training that they look at."""

    def __init__(self, checks: Iterable[Check]) -> None:
        """Sort the facets by the event that they ask for."""
        self.training = Training()
        self._facets = [(check, facet) for check in checks for facet in check.of(Instrument.WATCH)]
        self.faults: list[str] = []
        """Checks that failed themselves: each is asked nothing more."""
        self._made: set[tuple[str, str, str | None, int | None]] = set()

    def see(self, event: Event) -> Iterator[Found]:
        """Take up an event and yield what checks find in it."""
        self.training.add(event)
        for check, finding in self.ask(event):
            key = (check.code, finding.message, finding.place.file, finding.place.line)
            if key not in self._made:
                self._made.add(key)
                yield Found(check, finding)

    def ask(self, event: Event) -> Iterator[Found]:
        """Yield what checks find in an event, made before or not."""
        inputs = {"event": event, "training": self.training}
        for check, facet in self._facets:
            if facet.subject is not type(event):
                continue
            wanted = {name: inputs[name] for name in inspect.signature(facet.examine).parameters}
            for finding in self._findings(check, facet, wanted):
                yield Found(check, replace(finding, severity=finding.severity or check.severity))

    def _findings(self, check: Check, facet: Facet, wanted: dict[str, object]) -> list[Finding]:
        """Ask a facet; one that fails itself is not asked again, and the others go on."""
        try:
            return list(facet.examine(**wanted))
        except Exception as exc:  # noqa: BLE001 - whatever a check raises, it is not the training's fault
            self._facets = [each for each in self._facets if each[1] is not facet]
            self.faults.append(f"{check.code} {check.slug} failed itself: {type(exc).__name__}: {exc}")
            return []
