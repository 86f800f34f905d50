"""Errors that no check knows: which of them is told, and whether the other ranks only waited for its rank."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.facets import Role
from ddpdoctor.logs.answer import Unknown
from ddpdoctor.logs.candidates import unexamined
from ddpdoctor.logs.handled_errors import before_cleaning, handled_before, has_gone_on, lines_after, survived
from ddpdoctor.logs.launchers import launcher_of
from ddpdoctor.logs.read.tracebacks import IN_SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddpdoctor.logs.candidates import Candidate
    from ddpdoctor.logs.record_buffer import MatchedLog
    from ddpdoctor.logs.records import Record

# No errors of their own: somebody, or something else, ended the program.
ENDED = re.compile(
    r"(?:^|\.)(?:KeyboardInterrupt|SystemExit|ChildFailedError|SignalException|SIGTERMException|CheckpointException)$"
)
GATHERED = re.compile(r"(?:^|\.)(?:WorkerGroupError|TrainingFailedError)$")  # what Ray makes of those of the ranks
LAST = 600  # characters of a traceback in which its message ends
SAID = 200  # tracebacks in which the launcher is looked for
# What says itself that another error is the one to read.
POINTS_ELSEWHERE = re.compile(
    r"failed to import on the worker\b|[Tt]his is not the actual error|The Inner error is reported as above"
    r"|(?i:(?:look|see|check)[^\n]{0,40} (?:above|further up)[^\n]{0,40} (?:error|cause|trace))"
)
FOLLOWS = (Role.GENERIC, Role.CONSEQUENCE)
Placed = tuple[int, "Record"]


@dataclass(frozen=True, slots=True)
class Stranger:
    """An error that no check knows, and where it stands among the records.

    ``is_awaited``: the rank that raised it is another than those who say that they waited, or the launcher saw ranks
    end of an exception beside others that a signal ended.
    """

    position: int
    told: Unknown
    is_awaited: bool


def stranger(kept: MatchedLog, suspects: Sequence[Candidate], *, calm: bool = False) -> Stranger | None:
    """Return the first exception that no log pattern matches; not one that the training survived.

    ``calm``: the training survived all suspects, too.
    """
    known = {each.position for each in suspects}
    for pattern in {each.log_pattern.pattern for each in suspects}:
        known |= unexamined(kept, pattern)
    errors = [(position, record) for position, record in enumerate(kept.log.records) if record.error]
    records = [
        pair
        for pair in errors
        if not ENDED.search(pair[1].error) and pair[0] not in known and not has_gone_on(kept, pair[1])
    ]
    if not records:
        return _before_a_wait(kept, suspects)
    ended = (known and not calm) or any(pair[0] not in known for pair in errors if pair not in records)
    records = [pair for pair in records if not GATHERED.search(pair[1].error)] or records
    records = [pair for pair in records if not _points_elsewhere(pair[1])] or records
    awaited = _awaited(kept, records, suspects)
    if known and not calm and all(_points_elsewhere(record) for _, record in records):
        return None
    position, first = _first_in_summary(records) or (awaited or records)[0]
    alike = [record for _, record in records if record.error == first.error]
    if not ended and all(survived(kept, record) for record in alike):
        return None
    told = _told(kept, first, alike)
    return Stranger(position, told, (position, first) in awaited)


def _before_a_wait(kept: MatchedLog, suspects: Sequence[Candidate]) -> Stranger | None:
    """Return the exception that a rank was handling when it began to wait, as in `finally: dist.barrier()`.

    Another rank waits, or was lost, that had none of its kind: what all ranks go through is no cause.
    """
    waiting = [each for each in suspects if each.log_pattern.waits or each.role in FOLLOWS]
    ranks = set(ranks_of(each.record for each in waiting))
    known = {(each.position, each.match.start()) for each in suspects}
    handled = [(each, first) for each in waiting if (first := handled_before(each.record, each.match.start()))]
    for each, first in handled:
        alike = {own.record.rank for own, told in handled if told.error == first.error}
        is_known = any(place == each.position and start < len(first.text) for place, start in known)
        if alike < ranks and not is_known and not ENDED.search(first.error):
            told = replace(_told(kept, first, [first]), count=len(alike))
            return Stranger(each.position, told, is_awaited=True)
    return None


def _awaited(kept: MatchedLog, records: Sequence[Placed], suspects: Sequence[Candidate]) -> list[Placed]:
    """Return the errors of ranks that the others waited for, the likeliest first; logs of ranks have no common clock.

    That is a rank that torchrun saw failing first, one that those who waited name, or one that Python ended; where no
    rank is told, one on another host than those who waited.
    """
    waiting = [each for each in suspects if each.log_pattern.waits or each.role is Role.GENERIC]
    positions = {place for each in waiting for place in kept.matched[each.log_pattern.pattern]}
    waited = set(ranks_of(kept.log.records[position] for position in positions))
    named = {each.finding.place.rank for each in waiting} - waited

    def likelihood(pair: Placed) -> tuple[bool, bool, bool, int]:
        rank = pair[1].rank
        return rank not in kept.failed_first, rank not in named, kept.statuses.get(rank, 0) <= 0, pair[0]

    mixed = any(status > 0 for status in kept.statuses.values()) and any(s < 0 for s in kept.statuses.values())
    hosts = {kept.log.records[position].node for position in positions}

    def is_other(record: Record) -> bool:
        if record.rank is not None:
            return bool(waited) and record.rank not in waited
        return mixed or (record.node is not None and bool(hosts) and record.node not in hosts)

    return sorted((pair for pair in records if is_other(pair[1])), key=likelihood)


def _first_in_summary(records: Sequence[Placed]) -> Placed | None:
    """Return the earliest of those in torchrun's summary, which has the root cause last; None for another log."""
    if not IN_SUMMARY.match(records[0][1].text):
        return None
    told = [pair for pair in records if IN_SUMMARY.match(pair[1].text)]
    return min(told, key=lambda pair: pair[1].time or 0)


def _points_elsewhere(record: Record) -> bool:
    return POINTS_ELSEWHERE.search(record.text[-LAST:]) is not None


def _told(kept: MatchedLog, first: Record, alike: Sequence[Record]) -> Unknown:
    """Return what is said of an error; ``alike`` are those of its kind."""
    said = (record.text for record in kept.log.records if record.error)
    last = (line.text for lines in kept.endings.values() for line in lines)
    launcher = launcher_of((first.text, *itertools.islice(said, SAID), *last))
    first = before_cleaning(first)
    return Unknown(first, len(alike), ranks_of(alike), lines_after(kept, first), _ranks_of_log(kept), launcher)


def _ranks_of_log(kept: MatchedLog) -> int:
    lines = (line.rank for every in kept.endings.values() for line in every if line.rank is not None and line.text)
    return len({*ranks_of(kept.log.records), *kept.statuses, *lines})


def ranks_of(records: Iterable[Record]) -> tuple[int, ...]:
    """Return the ranks that the records are of, in order."""
    return tuple(sorted({record.rank for record in records if record.rank is not None}))
