"""The examination: each check's probe facets, given what they ask for; one result for each check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddpdoctor.engine import evaluate_all, result
from ddpdoctor.facets import BadTarget, Check, Instrument, NotRun
from ddpdoctor.findings import OUT_OF_TIME, TIME, Result, Status

SHOWN = (Status.NOT_RUN, Status.PASSED, Status.FAILED, Status.CRASHED)
"""How much a result shows, least first."""


class TimeUp(BaseException):
    """The time of the whole run is used up."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What facets can ask for, by the name of their parameter; made when first asked for, and once.

    A maker raises NotRun when there is nothing to give, BadTarget when that is the fault of what the user named.
    """

    makers: Mapping[str, Callable[[], Any]]
    _made: dict[str, tuple[Any, NotRun | None]] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """Return what a parameter asks for.

        Raises:
            NotRun: there is nothing to give; the text says why.
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
        """What was wrong with the targets that the user named."""
        return tuple(dict.fromkeys(str(absent) for _, absent in self._made.values() if isinstance(absent, BadTarget)))


def examine(check: Check, inputs: Inputs) -> Result:
    """Run the probe facets of one check."""
    try:
        return evaluate_all(check, check.of(Instrument.PROBE), inputs.get)
    except TimeUp:
        return out_of_time(check)


def merged(results: Iterable[Result]) -> tuple[Result, ...]:
    """Return one result for each check, sorted by code: of several instruments, the one that shows most."""
    by_code: dict[str, list[Result]] = {}
    for each in results:
        by_code.setdefault(each.code, []).append(each)
    return tuple(_merged(group) for _, group in sorted(by_code.items()))


def _merged(group: list[Result]) -> Result:
    findings = tuple(finding for each in group for finding in each.findings)
    return replace(max(group, key=lambda each: SHOWN.index(each.status)), findings=findings)


def out_of_time(check: Check) -> Result:
    """Return the result of a check for which the time did not suffice."""
    return result(check, Status.NOT_RUN, reason=OUT_OF_TIME, wants=TIME)
