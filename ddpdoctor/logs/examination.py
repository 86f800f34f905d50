"""From logs to the answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ddpdoctor.facets import BadTarget, Role
from ddpdoctor.literals import literals
from ddpdoctor.logs.answer import Confidence
from ddpdoctor.logs.candidates import Declared, candidates, declared
from ddpdoctor.logs.own_findings import OWN, is_hang, own_findings
from ddpdoctor.logs.pattern_cache import cached
from ddpdoctor.logs.ranking import judged
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.logs.record_buffer import RecordBuffer
from ddpdoctor.logs.search.finder import finder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ddpdoctor.facets import Check
    from ddpdoctor.logs.answer import Answer
    from ddpdoctor.logs.flight.dumps import Dump
    from ddpdoctor.logs.read.reader import Reader


@dataclass(slots=True)
class Examination:
    """One look at the output of a training, which can be asked at any time what it has seen so far."""

    patterns: tuple[Declared, ...]
    buffer: RecordBuffer
    faults: list[str] = field(default_factory=list)

    def anew(self) -> Examination:
        """Return one that has seen nothing yet, for other logs: preparing the search is what takes the time."""
        return Examination(self.patterns, RecordBuffer(self.buffer.finder.anew()))

    def begin(self, origin: Origin) -> Reader:
        """Begin a source that is fed piece by piece."""
        return self.buffer.reader(origin)

    def feed(self, reader: Reader, data: bytes) -> None:
        """Take a piece of it; the empty one is its end."""
        self.buffer.keep_last_job(reader, reader.feed(data) if data else reader.finish())

    def pause(self, reader: Reader) -> None:
        """Take a traceback for complete although the source is still being written."""
        self.buffer.keep_last_job(reader, reader.pause())

    def read(self, origin: Origin, blocks: Iterable[bytes]) -> None:
        """Read a whole source; where that fails, what was read before counts."""
        reader = self.begin(origin)
        try:
            for block in blocks:
                self.feed(reader, block)
        except BadTarget as exc:
            self.faults.append(str(exc))
        self.feed(reader, b"")

    @property
    def blank(self) -> tuple[str, ...]:
        """The sources that hold nothing but blanks."""
        return self.buffer.blank

    def compare(self, dumps: Sequence[Dump]) -> None:
        """Take all dumps of flight recorders there are by now, since each tells of its own rank only."""
        from ddpdoctor.logs.flight.compare import compared  # here, since most logs are none

        for dump in dumps:
            if not self.buffer.forget(dump.name):
                self.begin(Origin(dump.name, dump.rank)).is_blank = False
        self.buffer.keep(compared(dumps))

    def answer(self, rank: int | None = None) -> Answer:
        """Return what the first cause is in what was read so far, or in what one rank said."""
        kept = self.buffer.kept(rank)
        crashes: list[str] = []
        found = tuple(candidates(kept, self.patterns, crashes))
        answer = judged(kept, found, (*self.faults, *crashes))
        own = own_findings(kept)
        cause = answer.cause
        if cause is not None and any(is_hang(each) and each.code != cause.check.code for each in own):
            if cause.role is Role.CONSEQUENCE:
                answer = replace(answer, cause=None, confidence=None, followed=(cause, *answer.followed))
            elif answer.confidence is Confidence.UNDECIDABLE and cause.check.area in BEHIND_A_HANG:
                answer = replace(answer, cause=None, confidence=None, others=(cause, *answer.others))
        own = () if answer.cause or answer.unknown else own
        return replace(answer, notes=self.buffer.notes, own=own)


BEHIND_A_HANG = {"collectives", "launching"}
"""Areas whose causes between which nothing decides can be what a hang led to: a time-out, an end by the scheduler."""


def examination(checks: Iterable[Check]) -> Examination:
    """Prepare to look for the log patterns of these checks."""
    return prepared(declared(checks), literals)


def quick_examination() -> Examination:
    """Prepare to look for the log patterns of all checks, of which only those are loaded that a log shows.

    Raises:
        LoadError: a check cannot be loaded.
    """
    patterns, needs = cached()
    return prepared(patterns, needs.__getitem__)


def prepared(patterns: tuple[Declared, ...], needs: Callable[[str], Collection[str]]) -> Examination:
    """Prepare to look for these log patterns; ``needs`` returns the literals of a pattern."""
    own = (each.log_pattern.pattern for each in patterns)
    context = (pattern for each in patterns for pattern in each.log_pattern.context)
    of_ours = {pattern.pattern: texts for pattern, texts in OWN.items()}
    found = finder((*own, *OWN), context, lambda each: of_ours.get(each) or needs(each))
    return Examination(patterns, RecordBuffer(found))


def explain(logs: Iterable[tuple[Origin, Iterable[bytes]]], checks: Iterable[Check]) -> Answer:
    """Read all logs, each an origin and its bytes in blocks, and find the first cause."""
    examined = examination(checks)
    for origin, blocks in logs:
        examined.read(origin, blocks)
    return examined.answer()
