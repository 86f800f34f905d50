"""What the checks say of exceptions: which of several ranks failed first, and why.

The log patterns know messages; the watch facets, asked about the first failure, know what the process has told besides.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.facets import Check, Role
from ddpdoctor.findings import Evidence, Finding
from ddpdoctor.literals import literals
from ddpdoctor.logs.candidates import declared
from ddpdoctor.logs.examination import Examination, prepared
from ddpdoctor.logs.read.tracebacks import frames_in
from ddpdoctor.logs.records import Kind, Record
from ddpdoctor.report.text import printable
from ddpdoctor.watch.dispatcher import Dispatcher, Found
from ddpdoctor.watch.events import Failed, PeerLost, Progress, Site
from ddpdoctor.watch.user_frames import users_sites

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer, Named

MARK = "\nddpdoctor: "  # begins each note


@dataclass(frozen=True, slots=True)
class RanksState:
    """What is known of the ranks of a training besides their exceptions: ``gone`` and the like as in PeerLost.

    ``told_hang``: it was told what they wait for, so a time-out of that wait is nothing new.
    """

    gone: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    progress: tuple[Progress, ...] = ()
    told_hang: bool = False


class Explainer:
    """The log patterns of all checks, prepared once for a process."""

    def __init__(self, checks: Iterable[Check]) -> None:
        """Take the checks; the search is prepared when something has failed."""
        self._checks = tuple(checks)

    def prepare(self) -> None:
        """Prepare the search now, for all explainers of these checks in this process and in those it forks."""
        _prepared(self._checks)

    def explain(
        self,
        failures: Sequence[Failed],
        dispatcher: Dispatcher,
        state: RanksState | None = None,
    ) -> list[Found]:
        """Return what the first of these failures is, of all ranks that failed."""
        state = state or RanksState()
        failures = sorted(failures, key=lambda failure: failure.time)
        records = [_record(failure) for failure in failures]
        answer = self._examined(records).answer()
        cause = answer.cause if answer.cause and answer.cause.role is not Role.CONSEQUENCE else None
        lost = {rank for named in _consequences(answer) for rank in named.ranks}
        first = _first(failures, records, cause, answer)
        followed = [each for each in failures if each.rank in lost and (first is None or each.pid != first.pid)]
        training = dispatcher.trainings.of(failures[0].pid)
        found = list(dispatcher.ask(first, training)) if first else []
        if first and not found and cause and cause.waits and state.told_hang:
            return []
        if first and not found and cause:
            found = [Found(cause.check, cause.finding)]
        if first and found:
            return [Found(check, _with(finding, first, followed)) for check, finding in found]
        if lost:
            event = PeerLost(
                pid=0, time=time.time(), first=first, others=tuple(followed), gone=state.gone, ended=state.ended,
                progress=state.progress,
                stack=_stack(records[failures.index(followed[0])]) if followed else (),
            )  # fmt: skip
            found = [self._known_otherwise(each, first) for each in dispatcher.ask(event, training)]
        if not (found or first or state.gone or state.ended) and answer.cause:
            return [Found(answer.cause.check, _with(answer.cause.finding, failures[0], []))]
        return found

    def _known_otherwise(self, found: Found, first: Failed | None) -> Found:
        """Add what an error is that ends any program alike, to a finding that only repeats it."""
        if first is None or not found.finding.message.endswith(first.said):
            return found
        named = self._of_any_program(first)
        if named is None:
            return found
        message = f"{found.finding.message}: {named.finding.message}"
        return Found(found.check, replace(found.finding, message=message, fix=named.finding.fix))

    def _of_any_program(self, failure: Failed) -> Named | None:
        """Return the check's word on an error that has no cause in the training."""
        fresh = _prepared(self._checks, plain=True).anew()
        fresh.buffer.keep(iter([_record(failure)]))
        answer = fresh.answer()
        return answer.cause if answer.cause and answer.cause.role is Role.CAUSE else None

    def tells_of_another(self, failure: Failed) -> bool:
        """Whether a failure only says that another rank is gone."""
        cause = self._examined([_record(failure)]).answer().cause
        return cause is not None and cause.role is Role.CONSEQUENCE

    def _examined(self, records: list[Record]) -> Examination:
        fresh = _prepared(self._checks).anew()
        fresh.buffer.keep(iter(records))
        return fresh


@functools.lru_cache(maxsize=2)
def _prepared(checks: tuple[Check, ...], *, plain: bool = False) -> Examination:
    """Prepare what is searched; ``plain``: the errors of any program, asked for where nothing else is known."""
    return prepared(tuple(each for each in declared(checks) if each.log_pattern.plain is plain), literals)


def _record(failure: Failed) -> Record:
    """Read a failure as a log's record."""
    return Record(
        text=failure.text.rstrip(),
        source=f"rank {failure.rank}" if failure.rank is not None else f"process {failure.pid}",
        rank=failure.rank,
        time=failure.time,
        kind=Kind.TRACEBACK,
        frames=frames_in(failure.text),
        error=failure.error,
        parameters=failure.parameters,
        path=failure.path,
    )


def _stack(record: Record) -> tuple[Site, ...]:
    return tuple(users_sites(reversed(record.frames)))


def _consequences(answer: Answer) -> Iterator[Named]:
    yield from answer.followed
    if answer.cause and answer.cause.role is Role.CONSEQUENCE:
        yield answer.cause
    if answer.unknown:
        yield from (each for each in answer.others if each.role is Role.GENERIC)


def _first(failures: list[Failed], records: list[Record], cause: Named | None, answer: Answer) -> Failed | None:
    told = cause.record if cause else answer.unknown.record if answer.unknown else None
    if told is None:
        return None
    failure = next(each for each, record in zip(failures, records, strict=True) if record.source == told.source)
    return failure if told in records else _handled(failure, told)


def _handled(failure: Failed, told: Record) -> Failed:
    """Return the exception that a rank was handling when it failed of another one."""
    stack = _stack(told)
    return replace(failure, error=told.error, text=told.text, site=stack[0] if stack else failure.site)


def _with(finding: Finding, first: Failed, followed: list[Failed]) -> Finding:
    """Add what the process saw of its surroundings, and what other ranks said after it."""
    seen = [Evidence(text, "", source) for text, source in first.seen]
    after = [Evidence(each.said, "", f"rank {each.rank}, {each.time - first.time:.1f} s later") for each in followed]
    return replace(finding, evidence=(*finding.evidence, *seen, *after))


def note(found: Iterable[Found], text: str) -> str:
    """Render findings as the lines of a note; evidence that the exception's own text shows is left out."""
    lines = []
    said = " ".join(text.split())
    for check, finding in found:
        lines.append(f"{MARK}{check.code} {check.slug}: {finding.message}")
        new = [each for each in finding.evidence if " ".join(each.seen.split()) not in said]
        lines += [f"  seen: {each.seen}" + (f" ({each.source})" if each.source else "") for each in new]
        if finding.ambiguity:
            lines.append("  what remains, likeliest first: " + "; or ".join(finding.ambiguity.causes))
            lines += ["  tell apart with:", *_pasted(finding.ambiguity.command)]
        lines.append(f"  fix: {finding.fix.summary}")
        lines += [*_pasted(finding.fix.command), *_pasted(finding.fix.diff)]
        lines.append(f"  more: ddpdoctor explain {check.code}")
    return printable("\n".join(lines))


def _pasted(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]
