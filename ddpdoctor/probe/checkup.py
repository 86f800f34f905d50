"""The examination: each check's probe facets, given what they ask for; one result for each check."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddpdoctor.check import BadTarget, Check, Facet, Instrument, NotRun
from ddpdoctor.model import Finding, Result, Status

OUT_OF_TIME = "the time of the whole run is used up (--timeout)"
Supply = Callable[[], Any]


class TimeUp(BaseException):
    """The time of the whole run is used up."""


@dataclass(frozen=True, slots=True)
class Supplies:
    """What facets can ask for, by the name of their parameter; made when first asked for, and once.

    A supply raises NotRun when there is nothing to give, BadTarget when that is the fault of what the user named.
    """

    makers: Mapping[str, Supply]
    _made: dict[str, tuple[Any, NotRun | None]] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """Give what the parameter asks for.

        Raises:
            NotRun: there is nothing to give; the text says why.
            KeyError: no instrument supplies it.
        """
        if name not in self._made:
            try:
                self._made[name] = self.makers[name](), None
            except NotRun as exc:
                self._made[name] = None, exc
        value, absent = self._made[name]
        if absent is not None:
            raise absent.with_traceback(None)
        return value

    def faults(self) -> tuple[str, ...]:
        """Say what was wrong with the targets that the user named."""
        return tuple(dict.fromkeys(str(absent) for _, absent in self._made.values() if isinstance(absent, BadTarget)))


def examine(check: Check, supplies: Supplies) -> Result:
    """Run the probe facets of one check; a facet that crashes is a result too."""
    started = time.monotonic()
    findings: list[Finding] = []
    absent: list[str] = []
    facets = check.of(Instrument.PROBE)
    try:
        for facet in facets:
            try:
                findings += _findings(facet, check, supplies)
            except NotRun as exc:
                absent.append(str(exc))
    except TimeUp:
        return not_run(check, OUT_OF_TIME)
    except Exception as exc:  # noqa: BLE001 - one check's fault must not end the checkup
        place = traceback.extract_tb(exc.__traceback__)[-1]
        text = " ".join(f"{type(exc).__name__}: {exc}".split())
        return result(check, Status.CRASHED, reason=f"{text} ({place.filename}:{place.lineno})")
    seconds = time.monotonic() - started
    if findings:
        return result(check, Status.FAILED, findings=tuple(findings), seconds=seconds)
    if len(absent) == len(facets):
        reason = absent[0] if absent else "no probe can see it"
        return result(check, Status.NOT_RUN, reason=reason, seconds=seconds)
    return result(check, Status.PASSED, seconds=seconds)


def _findings(facet: Facet, check: Check, supplies: Supplies) -> list[Finding]:
    inputs = {name: supplies.get(name) for name in facet.needs}
    return [
        finding if finding.severity is not None else replace(finding, severity=check.severity)
        for finding in facet.examine(**inputs)
    ]


def not_run(check: Check, reason: str) -> Result:
    """Make the result of a check that had nothing to look at."""
    return result(check, Status.NOT_RUN, reason=reason)


def result(check: Check, status: Status, **rest: Any) -> Result:
    """Make the result of a check."""
    return Result(check.code, check.slug, check.area, check.title, status, **rest)
