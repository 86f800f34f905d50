"""Each check's broken case and healthy twin, watched on real ranks: found in the one, silent on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.facets import NotRun
from ddpdoctor.findings import Result, Status
from ddpdoctor.jobs.outcome import Raised
from ddpdoctor.selftest.result import SelfTestResult, fixture
from ddpdoctor.watch.pooled import Launch, watch_in_pool

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.pool import Jobs
    from ddpdoctor.watch.dispatcher import Found

HANG_AFTER = 2.0  # for broken cases; a healthy script that a busy machine holds up for so long is not blamed
NEVER = 100.0
NOT_SHOWN = "not shown: "
"""Begins the message of a broken script's exception where the fault does not come about, and says why."""


def try_watch(check: Check, checks: tuple[Check, ...], jobs: Jobs) -> SelfTestResult:
    """Watch both scripts with all checks there are."""
    try:
        broken = [
            found for found in watched(fixture(check, "broken.py"), checks, jobs, until=check) if found.check is check
        ]
        healthy = watched(fixture(check, "healthy.py"), checks, jobs)
    except NotRun as exc:
        absent = _result(check, Status.NOT_RUN, [], str(exc))
        return SelfTestResult(check, absent, absent, "watch")
    others = ", ".join(found.check.slug for found in healthy)
    return SelfTestResult(
        check,
        _result(check, Status.FAILED if broken else Status.PASSED, broken),
        _result(check, Status.FAILED if healthy else Status.PASSED, healthy, others),
        "watch",
    )


def watched(script: Path, checks: tuple[Check, ...], jobs: Jobs, until: Check | None = None) -> list[Found]:
    """Run a script on two ranks of the pool, and give what the watch finds; end it once ``until`` has found something.

    Raises:
        NotRun: the pool cannot run anything, or the script says that its fault does not come about here.
    """
    if problem := jobs.problem():
        raise NotRun(f"torch cannot be imported: {problem.strip().splitlines()[-1]}")
    launch = Launch(script=script, hang_after=HANG_AFTER if until else NEVER)
    outcomes, found = watch_in_pool(launch, checks, jobs, lambda found: any(each.check is until for each in found))
    for each in outcomes:
        if isinstance(each, Raised) and each.message.startswith(NOT_SHOWN):
            raise NotRun(each.message.removeprefix(NOT_SHOWN))
    return found


def _result(check: Check, status: Status, found: list[Found], reason: str = "") -> Result:
    findings = tuple(each.finding for each in found)
    return Result(check.code, check.slug, check.area, check.title, status, findings, reason)
