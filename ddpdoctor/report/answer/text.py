"""What ``ddpdoctor explain`` found in a log, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ddpdoctor.findings import Result, Status
from ddpdoctor.logs.own_findings import is_fault
from ddpdoctor.logs.read.clock import YEAR
from ddpdoctor.logs.unknown.message import more_said
from ddpdoctor.logs.unknown.next_steps import doing, met_by, next_step, raised_in, root_of
from ddpdoctor.redact import redact, redacted
from ddpdoctor.report.style import PLAIN, Style
from ddpdoctor.report.text import INDENT, MARGIN, labelled, printable, result_text

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer, Named, Own, Unknown
    from ddpdoctor.logs.records import Record

RANKS = 8  # that are listed; more are counted
GOES_ON = 70  # characters of a finding's first line, from which on the next one is taken to go on with it
FRAMES = 4  # of the user's own code that are shown of an unknown error, the innermost ones
GROUPS = (("other causes, later or less sure", "others"), ("what followed", "followed"), ("harmless", "harmless"))


def without_secrets(answer: Answer) -> Answer:
    """Return the answer as it can be shown: no password or token in what it quotes."""

    def safe(named: Named) -> Named:
        return replace(named, finding=redacted(named.finding))

    def quotable(unknown: Unknown | None) -> Unknown | None:
        return unknown and replace(unknown, record=replace(unknown.record, text=redact(unknown.record.text)))

    return replace(
        answer,
        cause=safe(answer.cause) if answer.cause else None,
        unknown=quotable(answer.unknown),
        also_unknown=quotable(answer.also_unknown),
        others=tuple(map(safe, answer.others)),
        followed=tuple(map(safe, answer.followed)),
        harmless=tuple(map(safe, answer.harmless)),
        own=tuple(replace(own, record=replace(own.record, text=redact(own.record.text))) for own in answer.own),
    )


def answer_text(answer: Answer, style: Style = PLAIN, *, verbose: bool = False) -> str:
    """Return the whole answer; ``verbose`` shows each of what it names as fully as the first cause."""
    answer = without_secrets(answer)
    lines = [*style.wrap(headline(answer), MARGIN, ""), *_first(answer, style, verbose=verbose)]
    if answer.also_unknown is not None:
        lines += ["an error beside it, which ddpdoctor does not know", *_unknown(answer.also_unknown, style, MARGIN)]
    notes = [line for note in answer.notes for line in style.wrap(printable(note), MARGIN, "")]
    return "\n".join([*notes, *lines, *_groups(answer, style, verbose=verbose)])


def first_text(answer: Answer, style: Style = PLAIN) -> str:
    """Return the first cause alone, or the first error, where none is known; empty where nothing failed."""
    return "\n".join(_first(without_secrets(answer), style, verbose=False))


def headline(answer: Answer) -> str:
    """Return in a line what was found and where."""
    if answer.cause is not None and answer.confidence is not None:
        return ", ".join(filter(None, (f"first cause: {answer.confidence.value}", seen_at(answer.cause.record))))
    if answer.unknown is not None:
        return ", ".join(filter(None, ("first error, which ddpdoctor does not know", seen_at(answer.unknown.record))))
    if faults := [each for each in answer.own if is_fault(each)]:
        several = len(faults) > 1
        alone = "" if answer.named else "; no other failure"
        return f"{len(faults)} finding{'s' * several} that ddpdoctor printed there{alone}"
    count, what = (answer.lines, "line") if answer.lines or not answer.sources else (len(answer.sources), "dump")
    return f"no failure in {count} {what}{'' if count == 1 else 's'}"


def _first(answer: Answer, style: Style, *, verbose: bool) -> Iterator[str]:
    if answer.cause is not None:
        yield _finding(answer.cause, style, verbose=verbose)
    elif answer.unknown is not None:
        yield from _unknown(answer.unknown, style)
    for each in answer.own:
        yield from _own(each, style)


def _own(own: Own, style: Style) -> Iterator[str]:
    """Quote the first line of a finding; what was seen, and the fix, stand below it in the log."""
    proof = own.record.proof()
    said = proof.seen.removeprefix("ddpdoctor: ")
    said += " ..." if len(said) > GOES_ON else ""
    yield from style.wrap(printable(said), MARGIN)
    yield from labelled("seen", f"{proof.source}: ddpdoctor has printed it; its evidence and fix stand below", style)
    yield from labelled("more", f"ddpdoctor explain {own.code}", style)


def _groups(answer: Answer, style: Style, *, verbose: bool) -> Iterator[str]:
    for title, name in GROUPS:
        group: tuple[Named, ...] = getattr(answer, name)
        if group:
            yield title
        for each in group:
            if verbose:
                yield _finding(each, style, verbose=verbose)
            else:
                said = f"{counted(each)} {each.check.code} {each.check.slug}: {printable(each.finding.message)}"
                yield from style.wrap(said, MARGIN * 2, MARGIN)


def _finding(named: Named, style: Style, *, verbose: bool) -> str:
    check = named.check
    result = Result(check.code, check.slug, check.area, check.title, Status.FAILED, (named.finding,))
    return result_text(result, style, verbose=verbose)


def _unknown(unknown: Unknown, style: Style, margin: str = "") -> Iterator[str]:
    proof = unknown.record.proof()
    yield from style.wrap(printable(proof.seen), MARGIN * 2 if margin else MARGIN, margin)
    yield from labelled("seen", proof.source, style)
    for said in more_said(unknown.record):
        yield from labelled("says", said, style)
    if because := root_of(unknown):
        yield from labelled("because", because, style)
    for frame in unknown.frames[-FRAMES:]:
        yield from labelled("in", f"{frame.file}:{frame.line}, {frame.function}", style)
    if unknown.record.code:
        yield from labelled("line", unknown.record.code, style)
    if raised := raised_in(unknown):
        yield from labelled("raised", raised, style)
    if part := doing(unknown):
        yield from labelled("while", part, style)
    if unknown.count > 1:
        yield from labelled("count", f"{unknown.count}{listed(unknown.ranks)}", style)
    if by := met_by(unknown):
        yield from labelled("by", by, style)
    step = next_step(unknown)
    yield from labelled("next", step.summary, style)
    yield f"{INDENT}{printable(step.command)}"


def counted(named: Named) -> str:
    """Return how often, and on which ranks."""
    return f"{named.count} x{listed(named.ranks)}"


def listed(ranks: Iterable[int]) -> str:
    """List a few ranks, count many."""
    ranks = list(ranks)
    if not ranks:
        return ""
    if len(ranks) > RANKS:
        return f" on {len(ranks)} ranks"
    return f" on rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def seen_at(record: Record) -> str:
    """Return on which rank and node, and when, in words."""
    parts = [] if record.rank is None else [f"rank {record.rank}"]
    parts += [] if record.node is None else [f"node {printable(record.node)}"]
    parts += [] if record.time is None else [moment(record.time)]
    return ", ".join(parts)


def moment(time: float) -> str:
    """Return a time as the log says it, in UTC where the log names a zone; without the year where it names none."""
    when = datetime.fromtimestamp(time, timezone.utc)
    return when.strftime("%m-%d %H:%M:%S" if when.year == YEAR else "%Y-%m-%d %H:%M:%S")
