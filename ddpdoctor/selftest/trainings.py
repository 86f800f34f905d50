"""Each check's broken case and healthy twin, watched on real ranks: found in the one, silent on the other."""

from __future__ import annotations

import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.facets import NotRun
from ddpdoctor.findings import Result, Status
from ddpdoctor.jobs.outcome import Raised
from ddpdoctor.selftest.result import SelfTestResult, fixture
from ddpdoctor.watch.monitor.monitor import Monitor
from ddpdoctor.watch.settings import Settings

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.pool import Jobs
    from ddpdoctor.watch.dispatcher import Found

POLL = 0.05  # seconds
HANG_AFTER = 2.0  # for broken cases; a healthy script that a busy machine holds up for so long is not blamed
NEVER = 100.0
DEADLINE = 20.0
NOT_SHOWN = "not shown: "
"""Begins the message of a broken script's exception where the fault does not come about, and says why."""
AROUND = "ddpdoctor.watch.rank.script:watched_script"


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
    with tempfile.TemporaryDirectory(prefix="ddpdoctor-") as folder, ThreadPoolExecutor(1) as thread:
        settings = Settings(session=folder, hang_after=HANG_AFTER if until else NEVER)
        environ: dict[str, str] = {}
        settings.export(environ)
        monitor = Monitor(settings, checks, lambda _: None)
        job = thread.submit(jobs.run_script, script, ranks=2, deadline=DEADLINE, environ=environ, around=AROUND)
        while not job.done():
            monitor.poll()
            if any(found.check is until for found in monitor.found):
                monitor.signal_ranks(signal.SIGKILL)
            wait([job], POLL)
        outcomes = job.result()
        monitor.end(0)
    for each in outcomes:
        if isinstance(each, Raised) and each.message.startswith(NOT_SHOWN):
            raise NotRun(each.message.removeprefix(NOT_SHOWN))
    return monitor.found


def _result(check: Check, status: Status, found: list[Found], reason: str = "") -> Result:
    findings = tuple(each.finding for each in found)
    return Result(check.code, check.slug, check.area, check.title, status, findings, reason)
