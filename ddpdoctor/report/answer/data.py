"""What ``ddpdoctor explain`` found in a log, as JSON and as Markdown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ddpdoctor.logs.unknown.next_steps import doing, next_step, raised_in
from ddpdoctor.report.answer.text import GROUPS, counted, headline, moment, without_secrets
from ddpdoctor.report.data import finding_data
from ddpdoctor.report.markdown import block, inline, what_to_do

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.logs.answer import Answer, Named, Own, Unknown
    from ddpdoctor.logs.records import Record

SCHEMA = "ddpdoctor-answer/2"


def as_json(answer: Answer) -> str:
    """Return the answer as JSON text; ``first`` is what it begins with, a cause or, where nothing failed, a note."""
    answer = without_secrets(answer)
    data = {
        "schema": SCHEMA,
        "first": _named(answer.first) if answer.first else None,
        "confidence": answer.confidence.value if answer.confidence else None,
        "unknown": _unknown(answer.unknown) if answer.unknown else None,
        "also_unknown": _unknown(answer.also_unknown) if answer.also_unknown else None,
        **{name: [_named(each) for each in getattr(answer, name)] for _, name in GROUPS},
        "own": [_own(each) for each in answer.own],
        "sources": list(answer.sources),
        "lines": answer.lines,
        "notes": list(answer.notes),
        "faults": list(answer.faults),
    }
    return json.dumps(data, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _named(named: Named) -> dict[str, Any]:
    check = named.check
    return {
        "code": check.code,
        "slug": check.slug,
        "area": check.area,
        "title": check.title,
        "role": named.role.value,
        "count": named.count,
        "ranks": list(named.ranks),
        **_where(named.record),
        "finding": finding_data(named.finding),
    }


def _unknown(unknown: Unknown) -> dict[str, Any]:
    return {
        "error": unknown.record.error,
        "says": unknown.record.proof().seen,
        "frames": [f"{frame.file}:{frame.line}, {frame.function}" for frame in unknown.frames],
        "count": unknown.count,
        "ranks": list(unknown.ranks),
        **_where(unknown.record),
    }


def _own(own: Own) -> dict[str, Any]:
    said = own.record.proof().seen
    return {"severity": str(own.severity), "code": own.code, "slug": own.slug, "says": said, **_where(own.record)}


def _where(record: Record) -> dict[str, Any]:
    time = None if record.time is None else moment(record.time)
    return {"source": record.source, "line": record.line, "rank": record.rank, "node": record.node, "time": time}


def as_markdown(answer: Answer) -> str:
    """Return the answer as Markdown, for an issue or a merge request."""
    return "\n".join(_markdown(without_secrets(answer))) + "\n"


def _markdown(answer: Answer) -> Iterator[str]:
    yield from (inline(note) + "\n" for note in answer.notes)
    yield f"**{inline(headline(answer))}**"
    if answer.cause is not None:
        yield from _section(answer.cause)
    elif answer.unknown is not None:
        yield from _error(answer.unknown)
    if answer.also_unknown is not None:
        yield from ("", "An error beside it, which ddpdoctor does not know:", *_error(answer.also_unknown))
    if answer.own:
        yield from ("", "What ddpdoctor has printed there:", "")
    yield from (f"- {inline(proof.source)}: {inline(proof.seen)}" for proof in (e.record.proof() for e in answer.own))
    for title, name in GROUPS:
        group: tuple[Named, ...] = getattr(answer, name)
        if group:
            yield from ("", f"{title.capitalize()}:", "")
        for each in group:
            yield f"- {counted(each)} `{each.check.code}` {each.check.slug}: {inline(each.finding.message)}"


def _error(unknown: Unknown) -> Iterator[str]:
    proof = unknown.record.proof()
    frames = [f"{frame.file}:{frame.line}, {frame.function}" for frame in unknown.frames]
    more = filter(None, [unknown.record.code, raised_in(unknown) and f"raised in {raised_in(unknown)}"])
    yield from block("\n".join([f"{proof.source}: {proof.seen}", *frames, *more]))
    step = next_step(unknown)
    if part := doing(unknown):
        yield f"While {inline(part)}."
    yield f"Next: {inline(step.summary)}"
    yield from block(step.command, "sh")


def _section(named: Named) -> Iterator[str]:
    finding, check = named.finding, named.check
    yield from ("", f"`{check.code}` {check.slug}: {inline(finding.message)}")
    if place := str(finding.place):
        yield from ("", f"Where: {inline(place)}")
    yield from ("", "Seen:")
    yield from block("\n".join(f"{each.source}: {each.seen}" for each in finding.evidence))
    yield from what_to_do(finding, check.code, "The log leaves these causes, likeliest first:")
