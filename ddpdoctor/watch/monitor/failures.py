"""What the ranks of a training have failed of: when enough of it is known, and what of it is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.findings import Severity
from ddpdoctor.watch.failure_explainer import RanksState

if TYPE_CHECKING:
    from ddpdoctor.watch.dispatcher import Dispatcher, Found
    from ddpdoctor.watch.failure_explainer import Explainer
    from ddpdoctor.watch.monitor.followed import Followed

SETTLED = 1.0  # seconds after a failure, in which other ranks fail because of it
PATIENCE = 10.0  # seconds in which the process that the others lost comes to its end


@dataclass(slots=True)
class Failures:
    """What was told of failures."""

    explainer: Explainer
    explained: list[Found] = field(default_factory=list)
    told: set[tuple[str, str | None, int | None]] = field(default_factory=set)

    def are_settled(self, each: Followed) -> bool:
        """Whether what follows from new failures has come.

        A process that is lost takes its time to write its core, and its launcher to say what ended it.
        """
        if each.failing_for < PATIENCE and not (each.ended() or each.is_accounted_for):
            failed = (*each.failed, *each.new)
            return each.failing_for > SETTLED and not all(map(self.explainer.tells_of_another, failed))
        return each.failing_for > SETTLED

    def explain(self, each: Followed, dispatcher: Dispatcher, found: Sequence[Found]) -> Iterator[Found]:
        """Yield what the ranks of a training have failed of: the first of them, and what followed; each fault once.

        ``found`` has what was told of the run until then.
        """
        each.failed += each.new
        each.new.clear()
        for new in self.explainer.explain(
            each.failed, dispatcher, RanksState(each.gone(), each.ended(), each.progress(), each.told_hang)
        ):
            each.known = True
            key = _key(new)
            if key not in self.told:
                self.told.add(key)
                self.explained.append(new)
                # what happened on another rank may have told it already, if not as a mere note
                if not any(_key(other) == key and _severity(other) >= _severity(new) for other in found):
                    yield new


def _key(found: Found) -> tuple[str, str | None, int | None]:
    return found.check.code, found.finding.place.file, found.finding.place.line


def is_fault(found: Found) -> bool:
    """Whether a finding is more than a note."""
    return _severity(found) > Severity.NOTE


def _severity(found: Found) -> Severity:
    severity = found.finding.severity
    return found.check.severity if severity is None else severity
