from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ddpdoctor.checkup.examine import Inputs, TimeUp, examine
from ddpdoctor.facets import BadTarget, Check, Facet, Instrument, NotRun
from ddpdoctor.findings import OUT_OF_TIME, Evidence, Finding, Fix, Severity, Status


def _check(*examines: Callable[..., Any]) -> Check:
    facets = tuple(Facet(Instrument.PROBE, each) for each in examines)
    return Check("ACME001", "some-check", "model", Severity.WARNING, "Title", "Page", facets, "acme")


def finds(facts: str) -> Iterator[Finding]:
    """Find something."""
    yield Finding(f"seen {facts}", (Evidence("it"),), Fix("mend it"))


def nothing(facts: str) -> list[Finding]:
    """Find nothing."""
    del facts
    return []


def crashes(facts: str) -> Iterator[Finding]:
    """Crash after a first finding."""
    yield from finds(facts)
    raise ZeroDivisionError("one\nand two")


def wants_model(model: object) -> list[Finding]:
    """Ask for what may not be there."""
    raise AssertionError(model)


def gives_up(facts: str) -> list[Finding]:
    """Have nothing to look at."""
    raise NotRun(f"no use of {facts}")


def too_late(facts: str) -> list[Finding]:
    """Be cut short by the run's deadline."""
    raise TimeUp(facts)


def _absent(exc: NotRun) -> Callable[[], object]:
    def supply() -> object:
        raise exc

    return supply


SUPPLIES = Inputs({"facts": lambda: "facts", "model": _absent(NotRun("no --model given"))})


@pytest.mark.parametrize(
    ("check", "status", "reason"),
    [
        (_check(nothing), Status.PASSED, ""),
        (_check(finds), Status.FAILED, ""),
        (_check(wants_model), Status.NOT_RUN, "no --model given"),
        (_check(gives_up, wants_model), Status.NOT_RUN, "no use of facts"),
        (_check(wants_model, nothing), Status.PASSED, ""),
        (_check(wants_model, finds), Status.FAILED, ""),
        (_check(too_late), Status.NOT_RUN, OUT_OF_TIME),
        (_check(), Status.NOT_RUN, "no probe can see it"),
    ],
)
def test_how_an_examination_ends(check: Check, status: Status, reason: str) -> None:
    """Passed only if some facet really looked; each other end with its reason."""
    result = examine(check, SUPPLIES)

    assert (result.status, result.reason) == (status, reason)


def test_a_crash_is_a_result_with_its_place() -> None:
    """One check's fault does not end the checkup, and is one line."""
    result = examine(_check(crashes), SUPPLIES)

    assert result.status is Status.CRASHED
    assert result.reason.startswith("ZeroDivisionError: one and two (")
    assert "test_checkup.py:" in result.reason


def test_an_input_that_nobody_supplies_is_a_crash_that_names_it() -> None:
    """A check that asks for a name that does not exist is a fault of the check."""

    def asks(frobnicator: object) -> list[Finding]:
        raise AssertionError(frobnicator)

    result = examine(_check(asks), SUPPLIES)

    assert (result.status, "frobnicator" in result.reason) == (Status.CRASHED, True)


def test_a_finding_takes_the_checks_severity_unless_it_has_its_own() -> None:
    """The engine fills it in."""
    assert [finding.severity for finding in examine(_check(finds), SUPPLIES).findings] == [Severity.WARNING]


def test_a_target_is_examined_once_and_its_fault_is_told_once() -> None:
    """Ten checks that ask for the same broken model build it once."""
    built: list[int] = []

    def model() -> object:
        built.append(1)
        raise BadTarget("--model train.py:f: your code raised ValueError")

    supplies = Inputs({"model": model})
    results = [examine(_check(wants_model), supplies) for _ in range(10)]

    assert {result.status for result in results} == {Status.NOT_RUN}
    assert supplies.faults() == ("--model train.py:f: your code raised ValueError",)
    assert len(built) == 1
