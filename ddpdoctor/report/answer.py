"""What ``ddpdoctor explain`` found in a log, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ddpdoctor.explain.clock import YEAR
from ddpdoctor.model import Result, Status
from ddpdoctor.report.redact import redact, redacted
from ddpdoctor.report.text import printable, result_text

if TYPE_CHECKING:
    from ddpdoctor.explain.answer import Answer, Named, Unknown
    from ddpdoctor.explain.records import Record

RANKS = 8  # that are listed; more are counted
FRAMES = 4  # of the user's own code that are shown of an unknown error, the innermost ones
GROUPS = (("other causes, later or less sure", "others"), ("what followed", "followed"), ("harmless", "harmless"))


def without_secrets(answer: Answer) -> Answer:
    """Give the answer as it can be shown: no password or token in what it quotes."""

    def safe(named: Named) -> Named:
        return replace(named, finding=redacted(named.finding))

    unknown = answer.unknown
    return replace(
        answer,
        cause=safe(answer.cause) if answer.cause else None,
        unknown=replace(unknown, record=replace(unknown.record, text=redact(unknown.record.text))) if unknown else None,
        others=tuple(map(safe, answer.others)),
        followed=tuple(map(safe, answer.followed)),
        harmless=tuple(map(safe, answer.harmless)),
    )


def answer_text(answer: Answer, *, width: int = 100, colour: bool = False, verbose: bool = False) -> str:
    """Give the whole answer; ``verbose`` shows each of what it names as fully as the first cause."""
    return "\n".join(_lines(without_secrets(answer), width, colour=colour, verbose=verbose))


def headline(answer: Answer) -> str:
    """Say in a line what was found and where."""
    if answer.cause is not None and answer.confidence is not None:
        return ", ".join(filter(None, (f"first cause: {answer.confidence.value}", seen_at(answer.cause.record))))
    if answer.unknown is not None:
        return ", ".join(filter(None, ("first error, which ddpdoctor does not know", seen_at(answer.unknown.record))))
    read = f"{answer.lines} lines" if answer.lines or not answer.sources else f"{len(answer.sources)} dumps"
    return f"nothing that failed in {read}"


def _lines(answer: Answer, width: int, *, colour: bool, verbose: bool) -> Iterator[str]:
    yield headline(answer)
    if answer.cause is not None:
        yield _finding(answer.cause, width, colour=colour, verbose=verbose)
    elif answer.unknown is not None:
        yield from _unknown(answer.unknown)
    for title, name in GROUPS:
        group: tuple[Named, ...] = getattr(answer, name)
        if group:
            yield title
        for each in group:
            if verbose:
                yield _finding(each, width, colour=colour, verbose=verbose)
            else:
                yield f"  {counted(each)} {each.check.code} {each.check.slug}: {printable(each.finding.message)}"


def _finding(named: Named, width: int, *, colour: bool, verbose: bool) -> str:
    check = named.check
    result = Result(check.code, check.slug, check.area, check.title, Status.FAILED, (named.finding,))
    return result_text(result, width=width, colour=colour, verbose=verbose)


def _unknown(unknown: Unknown) -> Iterator[str]:
    proof = unknown.record.proof()
    yield f"  {printable(proof.seen)}"
    yield f"    seen      {printable(proof.source)}"
    for frame in unknown.frames[-FRAMES:]:
        yield f"    in        {printable(f'{frame.file}:{frame.line}, {frame.function}')}"
    if unknown.count > 1:
        yield f"    count     {unknown.count}{listed(unknown.ranks)}"


def counted(named: Named) -> str:
    """Say how often, and on which ranks."""
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
    """Say on which rank and node, and when."""
    parts = [] if record.rank is None else [f"rank {record.rank}"]
    parts += [] if record.node is None else [f"node {printable(record.node)}"]
    parts += [] if record.time is None else [moment(record.time)]
    return ", ".join(parts)


def moment(time: float) -> str:
    """Give a time as the log says it, in UTC where the log names a zone; without the year where it names none."""
    when = datetime.fromtimestamp(time, timezone.utc)
    return when.strftime("%m-%d %H:%M:%S" if when.year == YEAR else "%Y-%m-%d %H:%M:%S")
