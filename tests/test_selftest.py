from __future__ import annotations

import pytest

from ddpdoctor.check import Check
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.jobs import Jobs
from ddpdoctor.probe.selftest import try_check
from ddpdoctor.registry import load_checks


@pytest.mark.parametrize("check", load_checks(), ids=lambda check: check.slug)
def test_the_patient_is_found_and_the_control_is_clean(check: Check, facts: Facts, jobs: Jobs) -> None:
    """Each check finds its patient and is silent on its control, both really run."""
    trial = try_check(check, facts, jobs)

    if trial.verdict == "not run":
        pytest.skip(trial.patient.reason or trial.control.reason)
    assert trial.verdict == "ok", (trial.patient, trial.control)
    for finding in trial.patient.findings:
        assert "\n" not in finding.message
        assert finding.fix.summary
