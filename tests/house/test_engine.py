"""The engine evaluates facets of all instruments; whatever a check does, the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ddpdoctor.check import Claim, Ended, Evidence, Finding, Fix, NotRun, Severity, log_pattern, probe, watch
from ddpdoctor.engine import evaluate, evaluate_all
from ddpdoctor.facets import Check, Facet, Instrument
from ddpdoctor.findings import Status
from ddpdoctor.logs.examination import explain
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.watch.dispatcher import Dispatcher

FOUND = Finding("it is broken", (Evidence("a crack"),), Fix("mend it"))
CRASHES = [ValueError("a fault of the check"), SystemExit(3), RecursionError(), MemoryError(), KeyError("x")]


def made(*facets: Facet, code: str = "ACME001") -> Check:
    """Return a check with these facets."""
    return Check(code, code.lower(), "acme", Severity.WARNING, "Title", "", facets, "acme")


def raising(exc: BaseException) -> Facet:
    """Return a probe that raises."""

    def examine(facts: object) -> Iterator[Finding]:
        del facts
        raise exc
        yield FOUND

    return probe(examine)


@probe
def finds(facts: object) -> Iterator[Finding]:
    """Find something."""
    del facts
    yield FOUND


def supply(name: str) -> object:
    """Return nothing of interest for any input."""
    return name


def test_a_finding_gets_the_severity_of_its_check() -> None:
    """A facet that says nothing of severity leaves it to the ailment."""
    assert [each.severity for each in evaluate(made(finds), finds, supply).findings] == [Severity.WARNING]


@pytest.mark.parametrize(("member", "speaks"), [(Severity.NOTE, True), (Severity.ERROR, False)])
def test_a_facet_of_a_family_is_asked_where_the_family_decides_for_it(member: Severity, *, speaks: bool) -> None:
    """The decision is a function of named inputs, as a facet is; what it raises is a crash of the check."""
    facet = replace(finds, claim=Claim(lambda facts: Severity.NOTE if facts == "facts" else None, (member,)))
    crashing = replace(finds, claim=Claim(lambda facts: facts.gone, (member,)))

    assert bool(evaluate(made(facet), facet, supply).findings) is speaks
    assert "gone" in evaluate(made(crashing), crashing, supply).crash


@pytest.mark.parametrize("exc", CRASHES, ids=lambda exc: type(exc).__name__)
def test_a_crash_is_a_result_that_names_the_place(exc: BaseException) -> None:
    """Whatever a check raises, its result says what and where, and nothing is raised."""
    result = evaluate_all(made(finds, raising(exc)), [finds, raising(exc)], supply)

    assert result.status is Status.CRASHED
    assert __file__ in result.reason


def test_what_a_facet_yields_must_be_findings() -> None:
    """A facet that yields something else has crashed."""
    facet = probe(lambda facts: [facts])

    assert "str" in evaluate(made(facet), facet, supply).crash


def test_the_rest_of_the_facets_are_asked_when_one_has_nothing_to_look_at() -> None:
    """A check is not run when all of its facets have nothing to look at, and then it says why."""
    absent = raising(NotRun("no GPU"))

    assert evaluate_all(made(absent, finds), [absent, finds], supply).status is Status.FAILED
    alone = evaluate_all(made(absent), [absent], supply)
    assert (alone.status, alone.reason) == (Status.NOT_RUN, "no GPU")


def test_interrupts_are_not_swallowed() -> None:
    """Ctrl-C during a check ends the command."""
    with pytest.raises(KeyboardInterrupt):
        evaluate(made(), raising(KeyboardInterrupt()), supply)


@pytest.mark.parametrize("exc", CRASHES, ids=lambda exc: type(exc).__name__)
def test_a_crash_ends_neither_a_monitor_nor_the_other_checks(exc: BaseException) -> None:
    """The check that crashed is asked nothing more and told of once; the others see each event."""

    def crashes(event: Ended) -> Iterator[Finding]:
        del event
        raise exc
        yield FOUND

    def works(event: Ended) -> Iterator[Finding]:
        yield Finding(f"ended with {event.status}", FOUND.evidence, FOUND.fix)

    dispatcher = Dispatcher([made(watch(Ended)(crashes)), made(watch(Ended)(works), code="ACME002")])
    found = [
        each.check.code for status in (0, 1) for each in dispatcher.see(Ended(pid=1, time=float(status), status=status))
    ]

    assert found == ["ACME002", "ACME002"]
    assert len(dispatcher.crashes) == 1
    assert dispatcher.crashes[0].code == "ACME001"


@pytest.mark.parametrize("exc", CRASHES, ids=lambda exc: type(exc).__name__)
def test_a_crash_does_not_end_the_explanation_of_a_log(exc: BaseException) -> None:
    """The others name the cause, and the answer says which check crashed."""

    def crashes() -> Iterator[Finding]:
        raise exc
        yield FOUND

    def works() -> Iterator[Finding]:
        yield FOUND

    checks = [made(log_pattern("BOOM")(crashes)), made(log_pattern("BOOM")(works), code="ACME002")]
    answer = explain([(Origin("log"), [b"BOOM\n"])], checks)

    assert answer.cause is not None
    assert answer.cause.check.code == "ACME002"
    assert len(answer.faults) == 1
    assert "ACME001" in answer.faults[0]


def test_no_facet_is_of_an_instrument_that_nothing_runs() -> None:
    """Each kind of facet has an instrument behind it."""
    assert {instrument.value for instrument in Instrument} == {"probe", "watch", "log", "lint"}
