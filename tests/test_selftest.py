from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.check import Check, Instrument
from ddpdoctor.explain.selftest import try_logs
from ddpdoctor.probe.selftest import try_check
from ddpdoctor.registry import load_checks
from ddpdoctor.watch.selftest import try_watch

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.jobs import Jobs

ALL = load_checks()
PROBED = [check for check in ALL if check.of(Instrument.PROBE)]
WATCHED = [check for check in ALL if check.of(Instrument.WATCH)]
SIGNED = [check for check in ALL if check.of(Instrument.SIGN)]


@pytest.mark.parametrize("check", PROBED, ids=lambda check: check.slug)
def test_the_patient_is_found_and_the_control_is_clean(check: Check, facts: Facts, jobs: Jobs) -> None:
    """Each check finds its patient and is silent on its control, both really run."""
    trial = try_check(check, facts, jobs)

    if trial.verdict == "not run":
        pytest.skip(trial.patient.reason or trial.control.reason)
    assert trial.verdict == "ok", (trial.patient, trial.control)
    for finding in trial.patient.findings:
        assert "\n" not in finding.message
        assert finding.fix.summary


@pytest.mark.parametrize("check", WATCHED, ids=lambda check: check.slug)
def test_the_watch_finds_the_patient_and_leaves_the_control_in_peace(check: Check, jobs: Jobs) -> None:
    """Each check sees its patient while it trains, and no check says anything of its control."""
    trial = try_watch(check, ALL, jobs)

    assert trial.verdict == "ok", (trial.patient, trial.control)
    for finding in trial.patient.findings:
        assert "\n" not in finding.message
        assert finding.fix.summary
        assert finding.place.file
        assert finding.place.line


@pytest.mark.parametrize("check", SIGNED, ids=lambda check: check.slug)
def test_the_patients_log_names_it_first_and_the_controls_does_not(check: Check) -> None:
    """Each sign finds its log, with the signs of all others beside it, and is silent on the control's."""
    trial = try_logs(check, ALL)

    assert trial.verdict == "ok", (trial.patient, trial.control)
    for finding in trial.patient.findings:
        assert "\n" not in finding.message
        assert finding.fix.summary
