"""Each check's broken case and healthy twin, watched on real ranks: found in the one, silent on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.facets import NotRun
from ddpdoctor.findings import Result, Status
from ddpdoctor.jobs.outcome import Raised, Returned, Stuck
from ddpdoctor.selftest.result import SelfTestResult, fixture, takes_long
from ddpdoctor.watch.pooled import Launch, Watched, watch_in_pool

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.outcome import Outcome
    from ddpdoctor.jobs.pool import Jobs
    from ddpdoctor.watch.dispatcher import Found

HANG_AFTER = 2.0  # for broken cases; a healthy script that a busy machine holds up for so long is not blamed
NEVER = 100.0
DEADLINE = 20.0  # seconds of a script
LONGER = 90.0  # the same, where others are at work on the machine
TRIES = 3  # of a healthy script that torch's own deadlock holds
NOT_SHOWN = "not shown: "
"""Begins the message of a broken script's exception where the fault does not come about, and says why."""
WITHOUT_STREAMS = "'Stream' object has no attribute 'record_event'"
"""What fully_shard ends with on a CPU, seen with torch 2.6."""
WITHOUT_NUMPY = "Numpy is not available"
"""What torch's object collectives end with where numpy is not installed."""
BUSY = 0.1  # of the time that a rank of the healthy twin waited for a core: what the clock tells is not told there


def try_watch(check: Check, checks: tuple[Check, ...], jobs: Jobs) -> SelfTestResult:
    """Watch both scripts with all checks there are."""
    try:
        broken, found = _of_broken_script(check, checks, jobs, DEADLINE)
        healthy = _of_healthy_script(check, checks, jobs)
        if not found and healthy.starved > BUSY and _stands(broken):  # it had not come to its fault
            broken, found = _of_broken_script(check, checks, jobs, LONGER)
            _refuse_unfinished(broken, found, healthy)
        if not found and takes_long(check):
            _refuse_clock(broken, healthy)
    except NotRun as exc:
        absent = _result(check, Status.NOT_RUN, [], str(exc))
        return SelfTestResult(check, absent, absent, "watch")
    status = Status.FAILED if found else Status.PASSED
    return SelfTestResult(check, _result(check, status, found), of_healthy(check, healthy), "watch")


def _refuse_unfinished(broken: Watched, found: list[Found], healthy: Watched) -> None:
    """Raise where a machine that is at work has kept ranks of the broken case from coming to its fault, or to be told.

    On a machine of their own the first seconds are enough for both.
    """
    if not found and _stands(broken):
        raise NotRun(
            f"not shown: its ranks had not ended after {LONGER:.0f} s, while those of the healthy twin waited for a "
            f"core {healthy.starved:.0%} of the time"
        )


def _refuse_clock(broken: Watched, healthy: Watched) -> None:
    """Raise where a machine that is at work has kept the broken case from showing what is told by the clock.

    How busy it is the healthy twin says: of some faults waiting for a core is a part.
    """
    if healthy.starved > BUSY:
        raise NotRun(
            f"not shown: ranks of the healthy twin waited for a core {healthy.starved:.0%} of the time, where what the "
            "clock tells is not told"
        )
    if _stands(broken):
        raise NotRun(f"not shown: its steps were not made within {DEADLINE:.0f} s: nothing was measured")


def _stands(watched: Watched) -> bool:
    """Whether a rank was still at work, or hung, when its time was up."""
    return any(isinstance(each, Stuck) for each in watched.outcomes)


def of_healthy(check: Check, watched: Watched) -> Result:
    """Return what is said of a healthy script; one that does not come to its end shows nothing, whatever was found."""
    found = watched.found
    for each in watched.outcomes:
        if not isinstance(each, Returned):
            return _result(check, Status.CRASHED, found, f"rank {each.rank} did not come to its end: {_how(each)}")
    others = ", ".join(each.check.slug for each in found)
    return _result(check, Status.FAILED if found else Status.PASSED, found, others)


def _of_broken_script(
    check: Check, checks: tuple[Check, ...], jobs: Jobs, deadline: float
) -> tuple[Watched, list[Found]]:
    ended = ended_and_found(fixture(check, "broken.py"), checks, jobs, until=check, deadline=deadline)
    return ended, [each for each in ended.found if each.check is check]


def _of_healthy_script(check: Check, checks: tuple[Check, ...], jobs: Jobs) -> Watched:
    for _ in range(TRIES):
        ended = ended_and_found(fixture(check, "healthy.py"), checks, jobs)
        if not any(_is_held_by_torch(each) for each in ended.outcomes):
            return ended
    raise NotRun("torch hung in destroy_process_group each time, as it does without the watch: DDP731")


def _is_held_by_torch(outcome: Outcome) -> bool:
    """Whether a rank hangs where torch gives up its group.

    With torch 2.2 and gloo one script of ten did without the watch too: the main thread keeps the GIL and waits for
    gloo's thread, which waits for the GIL to free the last collective's tensor.
    """
    return isinstance(outcome, Stuck) and any(each.function == "destroy_process_group" for each in outcome.stack)


def _how(outcome: Outcome) -> str:
    match outcome:
        case Raised(kind=kind, message=message):
            return f"{kind}: {message}"
        case Stuck(stack=(frame, *_)):
            return f"it stood at {frame.file}:{frame.line}"
    return type(outcome).__name__.lower()


def watched(script: Path, checks: tuple[Check, ...], jobs: Jobs, until: Check | None = None) -> list[Found]:
    """Return what the watch finds, as ``ended_and_found`` does."""
    return ended_and_found(script, checks, jobs, until).found


def ended_and_found(
    script: Path, checks: tuple[Check, ...], jobs: Jobs, until: Check | None = None, deadline: float = DEADLINE
) -> Watched:
    """Run a script on two ranks of the pool; return how they ended, and what the watch finds.

    They are killed once ``until`` has found something, or after ``deadline`` seconds.

    Raises:
        NotRun: the pool cannot run anything, or the script says that its fault does not come about here.
    """
    if problem := jobs.problem():
        raise NotRun(f"torch cannot be imported: {problem.strip().splitlines()[-1]}")
    launch = Launch(script=script, deadline=deadline, hang_after=HANG_AFTER if until else NEVER)
    ended = watch_in_pool(launch, checks, jobs, lambda found: any(each.check is until for each in found))
    for each in ended.outcomes:
        if isinstance(each, Raised) and each.message.startswith(NOT_SHOWN):
            raise NotRun(each.message.removeprefix(NOT_SHOWN))
        if isinstance(each, Raised) and WITHOUT_STREAMS in each.message:
            raise NotRun("fully_shard of this torch works on GPUs alone")
        if isinstance(each, Raised) and WITHOUT_NUMPY in each.message:
            raise NotRun("the script sends objects between ranks, for which torch needs numpy: pip install numpy")
    return ended


def _result(check: Check, status: Status, found: list[Found], reason: str = "") -> Result:
    findings = tuple(each.finding for each in found)
    return Result(check.code, check.slug, check.area, check.title, status, findings, reason)
