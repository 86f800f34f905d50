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
LOGGED = re.compile(r"\b(?:WARN(?:ING)?|ERROR|CRITICAL)\b|^\[[WE] \d{4}-")
HEAD = 60  # characters in which a line names its level
GOES_ON = re.compile(r"\b(?:INFO|DEBUG)\b|^\[I \d{4}-|(?i:\b(?:step|epoch|iter(?:ation)?|loss)\b\W{0,3}\d)")
TRAINS = re.compile(r"(?i:\b(?:step|epoch|iter(?:ation)?)\b\W{0,3}\d)")
CHAINED = "During handling of the above exception, another exception occurred"
LAST_WORDS = re.compile(r"\bwandb\b|NCCL (?:INFO|WARN)|summary", re.IGNORECASE)
BUFFERED = 1 << 14  # characters: what Python holds back of a rank's output, and prints below a last traceback, is less
ENDED_WELL = re.compile(
    r"(?i:\btraining (?:is |was |has )?(?:complete|completed|finished|done)\b|\bepochs? completed in\b)"
    r"|'train_runtime': |\bexits successfully\b|worker group successfully finished|`Trainer\.fit` stopped: `max_"
)
SAYS_AN_ERROR = re.compile(
    r"[a-z](?:Error|Exception|Timeout)\b|\bout of memory\b|\b(?:Error|ERROR)\b|\b[Ff]ailed\b|\bDUE TO PREEMPTION\b"
)
WARNED = re.compile(r"\bWARN(?:ING)?\b")
LAUNCHERS = re.compile(r"elastic|torchrun|NCCL|[Rr]aylet|\bNODE\b")
TESTS_PASSED = re.compile(
    r"^Ran \d+ tests? in [\d.]+s\s+OK\b|^=+ (?:\d+ (?:passed|skipped|xfailed|xpassed|deselected|warnings?),? ?)+in \d",
    re.MULTILINE,
)
ENDED_BADLY = re.compile(
    r"(?:srun|slurmstepd): error: |^(?:mpirun|mpiexec|prterun)\b|\bExited with exit code\b|\(core dumped\)|^Killed$"
    r"|failed \(exitcode: |\bChildFailedError\b|exits with return code = [1-9]"
)
IN_THREAD = re.compile(r"^(?:Exception in thread|Thread) \S[^\n]*:$")
RECOVERS = re.compile(
    r"(?i:\b(?:will retry|retrying|falling back|fallback to|skipping|will try again|trying again|requeued)\b)"
)
QUOTE = re.compile(r"""(?:^|[\s:=(\[{,>])(?P<quote>["'`])""")
SAMPLE = re.compile(
    r"(?i:\b(?:text|prompt|sample|input|source|target|completion|question|answer|response|instruction|title|body"
    r"|caption|sentence|generated|prediction|label)s?\b\W{1,6})$|\bprint\(f?$"
)
DATA = re.compile(r"^\W{0,8}(?i:prompt|sample|completion|question|answer|response|caption|generated|text)s?\W{0,3}[:=]")


def lines_after(kept: MatchedLog, record: Record) -> int:
    """Count the lines after a record; a live exception is the last that is known of its process."""
    return kept.lengths[record.source] - record.numbers[-1] if record.numbers else 0


def survived(kept: MatchedLog, record: Record) -> bool:
    """Whether much more was printed; or a little, after a traceback of a thread or one that `logging` printed."""
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
    below = _below(kept, record)
    trains = sum(TRAINS.search(text) is not None for text in below) >= SOME
    ends_well, recovers = any(ENDED_WELL.search(text) for text in below), _is_recovered(record, below)
    if (ends_well and recovers) or (trains and (ends_well or recovers)):
        return True
    head = before[-1].text if before else ""
    is_of_a_string = bool(record.frames) and all(frame.file.startswith("<") for frame in record.frames)
    if (IN_THREAD.search(head) or is_of_a_string) and trains:  # code that a model has written, and a reward that ran it
        return True
    is_logged = LOGGED.search(head[:HEAD]) is not None
    is_by_a_logger = any(line.is_logged for line in lines if line.number == record.line)  # as many a last word is
    if is_by_a_logger or (is_logged and trains and not kept.statuses):  # lines below can count as parts of the message
        return trains
    return is_logged and sum(GOES_ON.search(line.text) is not None for line in after) >= SOME


def is_quoted(text: str, start: int) -> bool:
    """Whether a line quotes what a model reads or writes: a sample of the data, or a string beside a step's number."""
    head = text[text.rfind("\n", 0, start) + 1 : start]
    if DATA.search(head):
        return True
    for opened in QUOTE.finditer(head):
        if opened["quote"] not in head[opened.end() :]:
            before = head[: opened.start("quote")]
            return TRAINS.search(before) is not None or SAMPLE.search(before) is not None
    return False


def was_caught(kept: MatchedLog, record: Record, start: int) -> bool:
    """Whether an error that a check knows was caught: the training went on, and no rank is known to have ended."""
    if not record.line or kept.statuses or not (record.error or SAYS_AN_ERROR.search(record.text)):
        return False
    below = [text for text in _below(kept, record) if LAST_WORDS.search(text) is None]
    if any(ENDED_BADLY.search(text) for text in below):
        return False
    if TESTS_PASSED.search("\n".join(below)):
        return True
    trains = sum(TRAINS.search(text) is not None for text in below) >= SOME
    ends_well = any(ENDED_WELL.search(text) for text in below)
    above = (line.text for line in kept.endings[record.source] if line.number == record.line - 1)
    head = next(above, "") if record.error else record.text[:start]
    warned = WARNED.search(head[:HEAD]) is not None and LAUNCHERS.search(head) is None
    if warned or IN_THREAD.search(head) or _is_recovered(record, below):
        return trains or ends_well
    return trains and (ends_well or sum(map(len, below)) > BUFFERED)


def _below(kept: MatchedLog, record: Record) -> list[str]:
    """Return what the same process said, as far as it is at hand, below the line that names an error."""
    last = record.said_at
    lines = kept.endings[record.source]
    return [line.text for line in lines if line.number > last and line.rank in {None, record.rank}]


def _is_recovered(record: Record, below: list[str]) -> bool:
    """Whether the error's own line, or the next one, says what is done instead."""
    raised = record.proof().seen
    return any(RECOVERS.search(text) for text in (raised, *below[:1]))


def has_gone_on(kept: MatchedLog, record: Record) -> bool:
    """Whether the very rank that printed a traceback trained on, as far as the last lines show.

    Its last words, NCCL's and those of whoever sums up the run, are no training.
    """
    if record.rank is None or not record.numbers or kept.statuses.get(record.rank, 0) > 0:
        return False
    lines = [line for line in kept.endings[record.source] if line.rank == record.rank]
    after = [line.text for line in lines if line.number > record.numbers[-1]]
    return sum(TRAINS.search(text) is not None and LAST_WORDS.search(text) is None for text in after) >= SOME


CLEANING = re.compile(
    r"\bin (?:\w*(?:teardown|clean_?up|on_exception|shutdown)\w*|reconciliate_processes|__exit__|__del__|_?close"
    r"|_?finish)$",
    re.MULTILINE,
)


def before_cleaning(record: Record) -> Record:
    """Return the exception that ended the program, where another came while a library put things in order after it."""
    last = record.text.rfind(CHAINED)
    if last < 0 or CLEANING.search(record.text, last) is None:
        return record
    return handled_before(record, last + 1) or record


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
