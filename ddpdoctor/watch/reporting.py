"""What a watch has found, as results and reports."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.engine import result
from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Report, Result, Severity, Status
from ddpdoctor.redact import redact, redacted
from ddpdoctor.report.data import as_json
from ddpdoctor.report.html.page import as_page
from ddpdoctor.report.markdown import watched_markdown
from ddpdoctor.report.steps import steps_lines
from ddpdoctor.report.style import PLAIN, Style
from ddpdoctor.report.text import MARGIN, printable, result_text
from ddpdoctor.report.verdict import number_of, verdict
from ddpdoctor.report.whole_file import write_whole
from ddpdoctor.watch.events import WatchFailed
from ddpdoctor.watch.figures.anatomy import marks, profile_data, steps_data
from ddpdoctor.watch.figures.compared import compared_text
from ddpdoctor.watch.figures.norms import norms_data
from ddpdoctor.watch.monitor.failures import is_fault

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.watch.dispatcher import Found
    from ddpdoctor.watch.monitor.monitor import Monitor

BY = "ddpdoctor: "
"""Says who speaks, between the lines of a training."""
WELL = {0, *(128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))}
"""The exit statuses of commands that failed of nothing: somebody ended them."""
KILLED = 128 + signal.SIGKILL

NO_RANK = "No process of this command was seen to join a process group, so no rank was watched."
NOT_LOADED = (
    "(Python with -I, -E or -S, or in a container, does not load the watch: ddpdoctor.install() in the script does.)"
)
NOT_SHOWN = "the training came to nothing that this check watches for"


def as_result(*found: Found) -> Result:
    """Return findings of one check as its result."""
    return result(found[0].check, Status.FAILED, findings=tuple(each.finding for each in found))


def found_results(monitor: Monitor) -> tuple[Result, ...]:
    """Return all that was found, by check, in the order in which it was found; then the checks that crashed.

    Checks that have a note alone come last: a rank that is late is told of before what it is late for.
    """
    by_check: dict[str, list[Found]] = {}
    for found in (*monitor.before, *monitor.found):
        by_check.setdefault(found.check.code, []).append(found)
    groups = sorted(by_check.values(), key=lambda group: not any(map(is_fault, group)))
    return (*(as_result(*group) for group in groups), *monitor.crashes)


def all_results(monitor: Monitor, checks: Iterable[Check]) -> tuple[Result, ...]:
    """Return what was found, and how it ended for the other checks that watch trainings."""
    there = found_results(monitor)
    named = {each.code for each in there}
    others = [check for check in checks if check.of(Instrument.WATCH) and check.code not in named]
    passed = [result(check, Status.PASSED) for check in others if check.code in monitor.asked]
    unseen = [check for check in others if check.code not in monitor.asked]
    return (*there, *passed, *(result(check, Status.NOT_RUN, reason=NOT_SHOWN) for check in unseen))


def finding_text(found: Found, style: Style = PLAIN, *, by: str = BY) -> str:
    """Return a finding as the report has it."""
    return result_text(redacted(as_result(found)), style, by=by)


def summary(monitor: Monitor) -> str:
    """Return all findings so far as text."""
    return "\n".join(finding_text(found, by="") for found in monitor.found)


def watched_text(monitor: Monitor, status: int, style: Style = PLAIN) -> str:
    """Return what a watch that ends has seen, and of what the command failed that ended with ``status``."""
    has_said = monitor.joined or monitor.before or monitor.found
    said = f"{_verdict(monitor, status)} " if has_said or status not in WELL else ""
    why = "" if monitor.joined or status not in WELL else f" {NOT_LOADED}"  # one that failed has ended before that
    return "\n".join(style.wrap(f"{BY}{said}{_seen(monitor)}{why}{_blind(monitor)}", MARGIN, ""))


def _blind(monitor: Monitor) -> str:
    """Return, of a watch that has failed itself, that it did; empty of any other."""
    failed = monitor.training.of(WatchFailed)
    ranks = sorted({each.rank for each in failed if each.rank is not None})
    if not ranks:
        return ""
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    return f" The watch itself failed on {who} ({failed[0].part}), a fault of ddpdoctor: not all was looked at."


def _seen(monitor: Monitor) -> str:
    """Return how much was watched, and what was compared."""
    if not monitor.joined:
        return NO_RANK
    ranks = monitor.ranks.counts.values()
    steps = int(max(each["steps"] for each in ranks))
    watched = f"Watched {number_of(len(ranks), 'rank')}, {number_of(steps, 'step')} of each."
    return f"{watched} {compared_text(monitor.trainings)}".rstrip()


def _verdict(monitor: Monitor, status: int) -> str:
    """Return the verdict; of a command that failed of what no check knows, what it failed of."""
    report = Report(found_results(monitor))
    failed = "" if status == 0 else printable(redact(monitor.first_failure()))
    if report.findings(Severity.WARNING) or (status in WELL and not failed):
        well = not report.findings(Severity.WARNING)
        return "Incomplete: nothing wrong in what was looked at." if well and _blind(monitor) else verdict(report)
    if status in WELL:
        return f"The command was ended after an error that no check knows: {failed}."
    if status == KILLED and not failed:
        return f"The command was ended by SIGKILL, by somebody or by the kernel for want of memory{_going_on(monitor)}."
    if monitor.interrupted and not failed:
        return f"The command was ended by Ctrl-C, with status {status}."
    of = f", of an error that no check knows: {failed}." if failed else ", and no check says of what."
    return f"The command failed with status {status}{of}"


def _going_on(monitor: Monitor) -> str:
    """Return which ranks a launcher has left behind that could not end them."""
    left = [each for each in monitor.ranks if each.rank >= 0 and each.alive]
    ranks = ", ".join(f"rank {each.rank}" for each in left)
    pids = " ".join(str(each.reader.pid) for each in left)
    return f"; without it {ranks} still {'runs' if len(left) == 1 else 'run'}: kill {pids}" if left else ""


def measured(monitor: Monitor) -> dict[str, dict[str, Any]]:
    """Return where the steps of each rank went, and what was measured closely."""
    return {"steps": steps_data(monitor.steps), "profile": profile_data(monitor.training)}


def steps_text(monitor: Monitor, style: Style = PLAIN) -> str:
    """Return where the steps of each rank went."""
    first, *others = steps_lines(**measured(monitor))
    return "\n".join([f"{BY}{first}", *(line if line.startswith(" ") else "\n".join(style.wrap(f"  {line}", "  ", ""))
                                         for line in others)])  # fmt: skip


def write_report(path: str, monitor: Monitor, seconds: float) -> None:
    """Write what was found as JSON; as a page where the file's name ends in .html, as Markdown where in .md."""
    report = redacted(Report(found_results(monitor), (), seconds))
    facts = {
        "seen": _seen(monitor),
        "watched": monitor.ranks.counts,
        **measured(monitor),
        "marks": marks(monitor.trainings),
        "norms": norms_data(monitor.trainings),
    }
    if path.endswith(".md"):
        lines = steps_lines(**measured(monitor)) if monitor.steps else []
        text = watched_markdown(report, _seen(monitor), lines)
    else:
        text = as_page(report, facts) if path.endswith(".html") else as_json(report, Severity.WARNING, facts)
    write_whole(Path(path), text)
