"""Exceptions that were handled: the process that printed one went on, or another exception came meanwhile."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.logs.read.tracebacks import ERROR, frames_in

if TYPE_CHECKING:
    from ddpdoctor.logs.record_buffer import MatchedLog
    from ddpdoctor.logs.records import Record

MANY = 20  # lines after an exception that say that the training went on, where nothing says that it ended
SOME = 2  # of those that only say so in words: a program that gives up logs a last one
LOGGED = re.compile(r"\b(?:WARN(?:ING)?|ERROR|CRITICAL)\b")
HEAD = 60  # characters in which a line names its level
GOES_ON = re.compile(r"\b(?:INFO|DEBUG)\b|(?i:\b(?:step|epoch|iter(?:ation)?|loss)\b\W{0,3}\d)")
TRAINS = re.compile(r"(?i:\b(?:step|epoch|iter(?:ation)?)\b\W{0,3}\d)")
CHAINED = "During handling of the above exception, another exception occurred"
LAST_WORDS = re.compile(r"\bwandb\b|NCCL (?:INFO|WARN)|summary", re.IGNORECASE)


def lines_after(kept: MatchedLog, record: Record) -> int:
    """Count the lines after a record; a live exception is the last that is known of its process."""
    return kept.lengths[record.source] - record.numbers[-1] if record.numbers else 0


def survived(kept: MatchedLog, record: Record) -> bool:
    """Whether much more was printed; or a little, after a traceback that `logging` printed, below a message."""
    if not record.numbers:
        return lines_after(kept, record) >= MANY
    every = kept.endings[record.source]
    lines = [line for line in every if line.rank in {None, record.rank}]
    is_at_hand = bool(every) and every[0].number <= record.numbers[-1]  # then those of other ranks can be left out
    last = record.numbers[-1]
    others = sum(line.number > last and line.rank not in {None, record.rank} for line in every) if is_at_hand else 0
    if lines_after(kept, record) - others >= MANY:
        return True
    before = [line for line in lines if line.number < record.line]
    after = [line for line in lines if line.number > record.numbers[-1]]
    is_logged = bool(before) and LOGGED.search(before[-1].text[:HEAD]) is not None
    if any(line.is_logged for line in lines if line.number == record.line):  # and many a last word is logged so
        return sum(TRAINS.search(line.text) is not None for line in after) >= SOME
    return is_logged and sum(GOES_ON.search(line.text) is not None for line in after) >= SOME


def has_gone_on(kept: MatchedLog, record: Record) -> bool:
    """Whether the very rank that printed a traceback trained on, as far as the last lines show.

    Its last words, NCCL's and those of whoever sums up the run, are no training.
    """
    if record.rank is None or not record.numbers or kept.statuses.get(record.rank, 0) > 0:
        return False
    lines = [line for line in kept.endings[record.source] if line.rank == record.rank]
    after = [line.text for line in lines if line.number > record.numbers[-1]]
    return sum(TRAINS.search(text) is not None and LAST_WORDS.search(text) is None for text in after) >= SOME


def handled_before(record: Record, position: int) -> Record | None:
    """Return the first exception of a chain, of the user's own code, where the chain goes on before a position."""
    end = record.text.find(CHAINED)
    if not 0 <= end < position:
        return None
    text = record.text[:end].rstrip()
    frames = frames_in(text)
    raised = [match["type"] for line in text.splitlines() if (match := ERROR.match(line))]
    # The time of a live record is that of the exception that left the process.
    first = replace(record, text=text, error=raised[-1] if raised else "", frames=frames, time=None)
    return first if first.error and first.users else None
