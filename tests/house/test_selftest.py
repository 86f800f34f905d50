from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from helpers import CHECKS, PREPARED

from ddpdoctor.cli.selftest import selftest
from ddpdoctor.facets import Check, Instrument
from ddpdoctor.findings import Status
from ddpdoctor.jobs.outcome import Returned, Stuck
from ddpdoctor.jobs.pool import Jobs, ServerLostError
from ddpdoctor.selftest.beside import beside
from ddpdoctor.selftest.logs import try_logs
from ddpdoctor.selftest.probes import try_check
from ddpdoctor.selftest.result import takes_long
from ddpdoctor.selftest.trainings import DEADLINE, LONGER, ended_and_found, of_healthy, try_watch
from ddpdoctor.watch.pooled import Launch, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.host.facts import Facts
    from ddpdoctor.jobs.outcome import Outcome
    from ddpdoctor.selftest.result import SelfTestResult

PROBED = [check for check in CHECKS if check.of(Instrument.PROBE)]
NIGHTLY = pytest.mark.nightly
WATCHED = [
    pytest.param(check, id=check.slug, marks=[NIGHTLY] if takes_long(check) else [])
    for check in CHECKS
    if check.of(Instrument.WATCH)
]
SIGNED = [check for check in CHECKS if check.of(Instrument.LOG)]


@pytest.mark.parametrize("check", PROBED, ids=lambda check: check.slug)
def test_the_patient_is_found_and_the_control_is_clean(check: Check, facts: Facts, jobs: Jobs) -> None:
    """Each check finds its broken case and is silent on its healthy twin, both really run."""
    trial = try_check(check, facts, jobs)

    if trial.verdict == "not run":
        pytest.skip(trial.broken.reason or trial.healthy.reason)
    assert trial.verdict == "ok", (trial.broken, trial.healthy)
    for finding in trial.broken.findings:
        assert "\n" not in finding.message
        assert finding.fix.summary


@pytest.mark.parametrize("check", WATCHED)
def test_the_watch_finds_the_patient_and_leaves_the_control_in_peace(check: Check, jobs: Jobs) -> None:
    """Each check sees its broken case while it trains, and no check says anything of its healthy twin."""
    trial = try_watch(check, CHECKS, jobs)

    if trial.verdict == "not run":
        pytest.skip(trial.broken.reason or trial.healthy.reason)
    assert trial.verdict == "ok", (trial.broken, trial.healthy)
    for finding in trial.broken.findings:
        assert "\n" not in finding.message
        assert finding.fix.summary
        assert finding.place.file
        assert finding.place.line


@pytest.mark.parametrize(("ends", "said"), [("time.sleep(600)", "healthy.py:2"), ("[][1]", "IndexError")])
def test_a_healthy_case_that_does_not_come_to_its_end_is_wrong(
    jobs: Jobs, checks: dict[str, Check], tmp_path: Path, ends: str, said: str
) -> None:
    """That nothing was found until then does not count for it."""
    (tmp_path / "healthy.py").write_text(f"import time\n{ends}\n")
    check = checks["unused-parameters"]
    ended = ended_and_found(tmp_path / "healthy.py", (), jobs, deadline=1.0)

    result = of_healthy(check, ended)

    assert result.status is Status.CRASHED
    assert said in result.reason


@pytest.mark.parametrize(
    ("broken", "starved", "verdict"),
    [
        (Returned(0, "", None), 0.5, "not run"),
        (Stuck(0, "", ()), 0.0, "not run"),
        (Returned(0, "", None), 0.0, "wrong"),
    ],
    ids=["busy", "too slow", "idle"],
)
def test_what_the_clock_tells_is_not_shown_on_a_machine_that_is_at_work(
    monkeypatch: pytest.MonkeyPatch, jobs: Jobs, broken: Outcome, starved: float, verdict: str
) -> None:
    """Nothing was found in the broken case: that is the machine's doing, or the check's, as the healthy twin says."""
    twins = iter([Watched((broken,), [], 0.0), Watched((Returned(0, "", None),), [], starved)] * 2)
    monkeypatch.setattr("ddpdoctor.selftest.trainings.watch_in_pool", lambda *_: next(twins))
    by_slug = {each.slug: each for each in CHECKS}

    assert try_watch(by_slug["waiting-for-data"], CHECKS, jobs).verdict == verdict
    assert try_watch(by_slug["unused-parameters"], CHECKS, jobs).verdict == "wrong", "no clock is needed"


def test_a_broken_case_that_a_busy_machine_kept_from_its_fault_has_more_time(
    monkeypatch: pytest.MonkeyPatch, jobs: Jobs
) -> None:
    """It stood when its time was up, and the ranks of its healthy twin waited for cores: that is no answer."""
    stood, ended = Watched((Stuck(0, "", ()),), [], 0.0), Watched((Returned(0, "", None),), [], 0.5)
    deadlines: list[float] = []
    twins = iter([stood, ended, stood])

    def watch(launch: Launch, *_: object) -> Watched:
        deadlines.append(launch.deadline)
        return next(twins)

    monkeypatch.setattr("ddpdoctor.selftest.trainings.watch_in_pool", watch)

    tried = try_watch(next(each for each in CHECKS if each.slug == "unused-parameters"), CHECKS, jobs)

    assert tried.verdict == "not run"
    assert "core 50% of the time" in tried.broken.reason
    assert deadlines == [DEADLINE, DEADLINE, LONGER]


def test_what_is_tried_beside_comes_in_its_order_and_its_loss_is_no_end() -> None:
    """The process beside us hands over each result; where it is lost, that is said: its checks have not passed."""
    results = [try_logs(check, PREPARED) for check in SIGNED[:2]]

    def lost() -> Iterator[SelfTestResult]:
        yield results[0]
        os._exit(1)

    with beside(lambda: results, CHECKS) as tried:
        assert list(tried) == results
    with beside(lost, CHECKS) as tried:
        assert next(tried) == results[0]
        with pytest.raises(RuntimeError, match="was ended"):
            next(tried)


def test_where_no_pool_can_be_opened_nobody_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-C while they are opened: the self-test ends, and says why."""

    def lost(*_: object) -> Jobs:
        raise ServerLostError("the fork server is gone")

    monkeypatch.setattr(Jobs, "twin", lost)

    assert isinstance(CliRunner().invoke(selftest, ["rank0-only-collective"]).exception, ServerLostError)


@pytest.mark.parametrize("check", SIGNED, ids=lambda check: check.slug)
def test_the_patients_log_names_it_first_and_the_controls_does_not(check: Check) -> None:
    """Each sign finds its log, with the signs of all others beside it, and is silent on the healthy twin's."""
    trial = try_logs(check, PREPARED)

    assert trial.verdict == "ok", (trial.broken, trial.healthy)
    for finding in trial.broken.findings:
        assert "\n" not in finding.message
        assert finding.fix.summary
