"""Evaluates facets, of all instruments: the one place where a check's code is called."""

from __future__ import annotations

import enum
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ddpdoctor.facets import Check, Claim, Facet, NotRun, parameters
from ddpdoctor.findings import Finding, Result, Status

Supply = Callable[[str], Any]
"""Returns the input of this name; raises NotRun where there is nothing to give."""
Returned = TypeVar("Returned")
Decisions = dict[Callable[..., enum.Enum | None], enum.Enum | None]
"""What families have decided of one set of inputs, by the function that decides."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a facet said: its findings, or why it had nothing to look at, or how it crashed."""

    findings: tuple[Finding, ...] = ()
    not_run: str = ""
    wants: str = ""
    crash: str = ""


def evaluate(check: Check, facet: Facet, supply: Supply, decided: Decisions | None = None) -> Evaluation:
    """Call a facet with what its parameters name, if its family decides for it; what it raises is part of the answer.

    Findings get the severity of the check, where the facet gave them none. ``decided`` is shared by the facets that are
    given the same inputs: what their families have decided by now, and then this one.
    """
    decided = {} if decided is None else decided
    try:
        if facet.claim and _decision(facet.claim, supply, decided) not in facet.claim.members:
            return Evaluation()
        found = tuple(_called(facet.examine, supply))
        return Evaluation(tuple(replace(each, severity=each.severity or check.severity) for each in found))
    except NotRun as exc:
        return Evaluation(not_run=str(exc), wants=exc.wants)
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - no crash of a check may end a training or other checks
        place = traceback.extract_tb(exc.__traceback__)[-1]
        text = " ".join(f"{type(exc).__name__}: {exc}".split())
        return Evaluation(crash=f"{text} ({place.filename}:{place.lineno})")


def _decision(claim: Claim, supply: Supply, decided: Decisions) -> enum.Enum | None:
    if claim.decide not in decided:
        decided[claim.decide] = _called(claim.decide, supply)
    return decided[claim.decide]


def _called(function: Callable[..., Returned], supply: Supply) -> Returned:
    return function(**{name: supply(name) for name in parameters(function)})


def evaluate_all(check: Check, facets: Iterable[Facet], supply: Supply) -> Result:
    """Evaluate several facets of a check, and return how it ended."""
    started = time.monotonic()
    said = []
    for facet in facets:
        said.append(evaluate(check, facet, supply))
        if said[-1].crash:
            return result(check, Status.CRASHED, reason=said[-1].crash)
    seconds = time.monotonic() - started
    findings = tuple(finding for each in said for finding in each.findings)
    if findings:
        return result(check, Status.FAILED, findings=findings, seconds=seconds)
    if all(each.not_run for each in said):
        why = next(iter(said), Evaluation(not_run="no probe can see it"))
        return result(check, Status.NOT_RUN, reason=why.not_run, wants=why.wants, seconds=seconds)
    return result(check, Status.PASSED, seconds=seconds)


def result(check: Check, status: Status, **rest: Any) -> Result:
    """Return the result of a check."""
    return Result(check.code, check.slug, check.area, check.title, status, **rest)
