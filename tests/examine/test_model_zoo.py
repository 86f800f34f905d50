"""No check reports anything above a note of healthy models of many kinds that is not true of them."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.examine.model.exam import ModelExam, examine_model
from ddpdoctor.examine.target import Target
from ddpdoctor.facets import Check, Instrument, NotRun
from ddpdoctor.findings import Finding, Severity

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

MODELS = Path(__file__).with_name("zoo_models.py")
KINDS = sorted(re.findall(r"^def model_(\w+)", MODELS.read_text(), re.MULTILINE))


def examine(jobs: Jobs, kind: str) -> ModelExam:
    """Examine a model of this file."""
    return examine_model(jobs, Target(str(MODELS), f"model_{kind}"), Target(str(MODELS), f"batch_{kind}"))


def alarms(exam: ModelExam) -> list[tuple[str, Finding]]:
    """Return what the checks of models say above a note."""
    found = []
    for check in model_checks():
        for facet in check.of(Instrument.PROBE):
            if facet.needs == ("model",):
                with suppress(NotRun):
                    found += [(check, finding) for finding in facet.examine(exam)]
    return [(check.slug, finding) for check, finding in found if (finding.severity or check.severity) > Severity.NOTE]


def model_checks() -> list[Check]:
    """Return the checks of models."""
    return [check for check in CHECKS if check.area == "model"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_model_raises_no_alarm(jobs: Jobs, kind: str) -> None:
    """Nothing above a note, and the steps under DDP really went through."""
    exam = examine(jobs, kind)

    assert exam.steps.plain[0].trouble is None
    assert alarms(exam) == []
    assert exam.steps.wrapped, exam.steps.why_not
