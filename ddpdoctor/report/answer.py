"""What ``ddpdoctor explain`` found in a log, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ddpdoctor.model import Result, Status
from ddpdoctor.report.text import printable, result_text

if TYPE_CHECKING:
    from ddpdoctor.explain.answer import Answer, Named, Unknown
    from ddpdoctor.explain.records import Record

RANKS = 8  # that are listed; more are counted


def answer_text(answer: Answer, *, width: int = 100, colour: bool = False, verbose: bool = False) -> str:
    """Give the whole answer."""
    return "\n".join(_lines(answer, width, colour=colour, verbose=verbose))


def _lines(answer: Answer, width: int, *, colour: bool, verbose: bool) -> Iterator[str]:
    if answer.cause is not None and answer.confidence is not None:
        where = seen_at(answer.cause.record)
        yield f"first cause, {answer.confidence.value}{f': {where}' if where else ''}"
        yield _finding(answer.cause, width, colour=colour, verbose=verbose)
    elif answer.unknown is not None:
        yield from _unknown(answer.unknown)
    else:
        yield "no cause found" + (", and nothing that failed" if not answer.followed else "")
    for title, group in (
        ("other causes, later or less sure", answer.others),
        ("what followed", answer.followed),
        ("harmless", answer.harmless),
    ):
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
    record = unknown.record
    where = seen_at(record)
    yield f"first error{f': {where}' if where else ''}; ddpdoctor does not know it"
    proof = record.proof()
    yield f"  {printable(proof.seen)}"
    yield f"    where     {printable(proof.source)}"
    for frame in [frame for frame in record.frames if frame.is_users][-4:]:
        yield f"    in        {printable(f'{frame.file}:{frame.line}, {frame.function}')}"
    if unknown.count > 1:
        yield f"    count     {unknown.count} times{listed(unknown.ranks)}"


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
    parts += [] if record.time is None else [datetime.fromtimestamp(record.time, timezone.utc).strftime("%H:%M:%S")]
    return ", ".join(parts)
