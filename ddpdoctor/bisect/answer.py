"""What a search came to, as text and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ddpdoctor.bisect.reason import Ending
from ddpdoctor.bisect.search import Answer, Kind, compared, with_changes
from ddpdoctor.redact import redact
from ddpdoctor.report.bench.text import time_text
from ddpdoctor.report.style import PLAIN, Style
from ddpdoctor.report.text import MARGIN, labelled, printable
from ddpdoctor.report.verdict import number_of

if TYPE_CHECKING:
    from ddpdoctor.bisect.changes import Change
    from ddpdoctor.bisect.trial import Trial

FIGURES = {"start": "from init_process_group to the first step of all ranks", "step": "a step"}


def headline(answer: Answer) -> str:
    """Return the answer in a sentence."""
    with_it = _listed(answer.changes)
    first = answer.trials[0] if answer.trials else None
    as_it_is = _ending(first) if first else "was not tried"
    gain = answer.before.middle / answer.after.middle if answer.before and answer.after else 1.0
    worked = f"; it worked {with_it}, which may hold more than is needed" if answer.changes else ""
    said = {
        Kind.FOUND: f"the start works {with_it}; as it is, it {as_it_is}",
        Kind.FASTER: f"{FIGURES.get(answer.figure, '')} is {gain:.1f} times as fast {with_it}",
        Kind.WORKS: "the start works as it is, and no change of these settings was shown to make it faster",
        Kind.PROGRAM: _no_matter(first),
        Kind.HOSTS: f"the start {as_it_is}; {_of_hosts(first)}",
        Kind.NOT_FOUND: f"the start {as_it_is}, with each change that was tried as well",
        Kind.UNSTEADY: f"cannot tell on this machine: runs {with_it or 'as it is'} do not all come out alike",
        Kind.OUT_OF_TIME: f"the time is used up after {number_of(len(answer.trials), 'run')} (--timeout){worked}",
    }
    return said[answer.kind]


def _no_matter(first: Trial | None) -> str:
    """Return why nothing was searched."""
    if first is None or first.ending is not Ending.NO_RANK:
        return f"no setting of the communication mends this: {redact(first.said) if first else ''}"
    return f"there is nothing to search for: {redact(first.said)}"


def _of_hosts(first: Trial | None) -> str:
    """Return why nothing is searched where ranks run on other hosts."""
    there = number_of(first.elsewhere, "rank") if first else ""
    return (
        f"its launcher starts {there} on other hosts, and bisect runs this host's part of the command alone, so no "
        "change is tried: ddpdoctor check on all hosts at once finds settings that are wrong on one of them"
    )


def _ending(trial: Trial) -> str:
    return f"{trial.ending.value}: {redact(trial.said)}" if trial.said else trial.ending.value


def _listed(changes: Sequence[Change]) -> str:
    if not changes:
        return ""
    return " and ".join(str(each) if each.value is None else f"with {each}" for each in changes)


def answer_text(answer: Answer, seconds: float, style: Style = PLAIN) -> str:
    """Return the answer, what to paste, what it costs, then the runs that it stands on."""
    lines = [*style.wrap(f"{printable(headline(answer))}.", MARGIN, ""), *_figures(answer, style)]
    advised = answer.changes if answer.kind is not Kind.UNSTEADY else ()
    for change in advised:
        lines += labelled("costs", f"{change}: {change.cost}", style)
    if advised:
        lines += labelled("fix", "in the shell that starts the training:", style)
        lines += [f"{MARGIN}{'':10}{printable(each.command)}" for each in advised]
    lines += [f"{number_of(len(answer.trials), 'run')}, {seconds:.0f} s:", *_runs(answer, style)]
    return "\n".join(lines)


def _figures(answer: Answer, style: Style) -> Iterator[str]:
    """Yield what was measured, with and without the changes."""
    for figure, name in FIGURES.items():
        before, after = compared(answer.trials, answer.changes, figure)
        if answer.kind is Kind.FASTER and figure == answer.figure:
            before, after = answer.before, answer.after
        if answer.kind in (Kind.FOUND, Kind.FASTER) and after is not None:
            was = f"; as it is {time_text(before)}" if before is not None else ""
            yield from labelled("measured", f"{name}: {time_text(after)}{was}", style)
        elif answer.kind is Kind.WORKS and before is not None:
            yield from labelled("measured", f"{name}: {time_text(before)}", style)


def _runs(answer: Answer, style: Style) -> Iterator[str]:
    for changes in dict.fromkeys(each.changes for each in answer.trials):
        trials = with_changes(answer.trials, changes)
        endings = " | ".join(dict.fromkeys(each.ending.value for each in trials))
        what = ", ".join(map(str, changes)) or "as it is"
        yield from style.wrap(printable(f"{len(trials)} x {endings}: {what}"), MARGIN * 2, MARGIN)


def answer_data(answer: Answer, seconds: float) -> dict[str, Any]:
    """Return the answer as plain data: times in seconds."""
    return {
        "answer": answer.kind.value,
        "said": headline(answer),
        "changes": [_change(each) for each in answer.changes],
        "seconds": seconds,
        "runs": [
            {
                "changes": [_change(each) for each in trial.changes],
                "ending": trial.ending.value,
                "said": redact(trial.said),
                "seconds": trial.seconds,
                "start": trial.start,
                "step": trial.step,
                "backend": trial.backend,
                "ranks": trial.ranks,
            }
            for trial in answer.trials
        ],
    }


def _change(change: Change) -> dict[str, Any]:
    return {"variable": change.variable, "value": change.value, "costs": change.cost, "command": change.command}
