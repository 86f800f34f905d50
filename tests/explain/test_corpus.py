"""Logs of others, in all the words that programs and versions use: each is answered as its label says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, FIXTURES, LOGGED, answered

from ddpdoctor.facets import Check, Facet, LogPattern
from ddpdoctor.logs.examination import examination
from ddpdoctor.selftest.corpus import ALONE, MISSED, NOTHING, UNDECIDABLE, Case, cases, corpus, first_word
from ddpdoctor.selftest.result import fixture

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer

CORPUS = corpus()
HEALTHY = sorted((FIXTURES / "healthy_logs").glob("*.log"))


def marked(case: Case) -> object:
    """Return a case as a parameter; one that is missed has to fail, else its flag is out of date."""
    missed = pytest.mark.xfail(reason="a known miss", raises=AssertionError)
    return pytest.param(case, id=case.name, marks=missed if MISSED in case.flags else ())


@pytest.mark.parametrize("case", [marked(case) for case in CORPUS])
def test_a_log_is_answered_as_its_label_says(case: Case) -> None:
    """The first cause with all checks in competition; where nothing failed, nothing is named."""
    answer = answered(case.log)

    assert case.is_right(answer), (sorted(case.labels), sorted(case.flags), first_word(answer), answer.named)


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_log_names_no_cause(path: Path) -> None:
    """Real runs and NCCL, Trainer, DeepSpeed and launcher output: whatever is said is harmless."""
    answer = answered(path.read_bytes())

    assert answer.cause is None
    assert answer.unknown is None
    assert answer.others + answer.followed == ()


def test_the_corpus_is_worth_something() -> None:
    """Hundreds of logs, more than a hundred of them reported by others, nearly all answered rightly."""
    reported = [case for case in CORPUS if case.about]
    known = {NOTHING, UNDECIDABLE, *(check.slug for check in CHECKS)}

    assert len(CORPUS) >= 600
    assert len(HEALTHY) >= 50
    assert sum(MISSED not in case.flags for case in reported) / len(reported) >= 0.97
    assert len({case.log for case in CORPUS if NOTHING in case.labels}) >= 50
    assert {label for case in CORPUS for label in case.labels if not label.startswith("unknown ")} <= known
    assert {flag for case in CORPUS for flag in case.flags} == {ALONE, MISSED, UNDECIDABLE}


@pytest.mark.parametrize("check", LOGGED, ids=lambda check: check.slug)
def test_a_finding_in_a_log_says_what_to_do(check: Check) -> None:
    """In its own log, where no unknown error is, it has something to paste."""
    broken = answered(fixture(check, "broken.log").read_bytes())

    assert broken.unknown is None
    assert broken.named[0].finding.fix.command or broken.named[0].finding.fix.diff


def supersedes(check: Check) -> set[str]:
    """Return what its log patterns supersede."""
    patterns = (facet.subject for facet in check.facets if isinstance(facet.subject, LogPattern))
    return {slug for pattern in patterns for slug in pattern.supersedes}


DUMPED = {"ranks-diverge"}  # in dumps, not in logs: see test_explain_dumps.py
SUPERSEDED = [(check, slug) for check in LOGGED for slug in sorted(supersedes(check)) if check.slug not in DUMPED]


@pytest.mark.parametrize(("check", "slug"), SUPERSEDED, ids=lambda each: getattr(each, "slug", each))
def test_what_a_check_supersedes_would_else_be_named_beside_it(check: Check, slug: str) -> None:
    """There is a log of its ailment that shows the other, too, as what followed; roles alone would not tell so."""
    logs = [fixture(check, "broken.log").read_text(), *(case.log for case in CORPUS if check.slug in case.labels)]
    without = examination(replace(each, facets=tuple(map(alone, each.facets))) for each in CHECKS)

    assert any(slug in followed(answered(log)) and slug not in followed(answered(log, without)) for log in logs)


def alone(facet: Facet) -> Facet:
    """Return the facet with nothing that it supersedes."""
    subject = facet.subject
    return replace(facet, subject=replace(subject, supersedes=())) if isinstance(subject, LogPattern) else facet


def followed(answer: Answer) -> set[str]:
    """Return what an answer lists as mere effects."""
    return {each.check.slug for each in answer.followed}


def test_the_corpus_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Labels, flags, where a log comes from, and its lines, blank ones within it and blanks at their ends too."""
    (tmp_path / "area.txt").write_text("> a | b, alone\n> from: there\n  one\n\ntwo \n\n> nothing\n3>2\n")

    first, second = cases(tmp_path / "area.txt")

    assert first == Case("area:1", frozenset("ab"), frozenset({"alone"}), ("from: there",), "  one\n\ntwo \n")
    assert second == Case("area:7", frozenset({"nothing"}), frozenset(), (), "3>2\n")
