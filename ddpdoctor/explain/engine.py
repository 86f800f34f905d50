"""From logs to the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.check import BadTarget
from ddpdoctor.explain.finder import finder
from ddpdoctor.explain.kept import Keeper
from ddpdoctor.explain.matching import compared
from ddpdoctor.explain.ranking import judged
from ddpdoctor.explain.signs import Declared, declared, suspects
from ddpdoctor.explain.sources import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddpdoctor.check import Check
    from ddpdoctor.explain.answer import Answer
    from ddpdoctor.explain.dumps import Dump
    from ddpdoctor.explain.reader import Reader


@dataclass(slots=True)
class Examination:
    """One look at the output of a training, which can be asked at any time what it has seen so far."""

    signs: tuple[Declared, ...]
    keeper: Keeper
    faults: list[str] = field(default_factory=list)

    def begin(self, origin: Origin) -> Reader:
        """Begin a source that is fed piece by piece."""
        return self.keeper.reader(origin)

    def feed(self, reader: Reader, data: bytes) -> None:
        """Take a piece of it; the empty one is its end."""
        self.keeper.keep(reader.feed(data) if data else reader.finish())

    def pause(self, reader: Reader) -> None:
        """Take a traceback for complete although the source is still being written."""
        self.keeper.keep(reader.pause())

    def read(self, origin: Origin, blocks: Iterable[bytes]) -> None:
        """Read a whole source; where that fails, what was read before counts."""
        reader = self.begin(origin)
        try:
            for block in blocks:
                self.feed(reader, block)
        except BadTarget as exc:
            self.faults.append(str(exc))
        self.feed(reader, b"")

    def compare(self, dumps: Sequence[Dump]) -> None:
        """Take all dumps of flight recorders there are by now, since each tells of its own rank only."""
        for dump in dumps:
            if not self.keeper.forget(dump.name):
                self.begin(Origin(dump.name, dump.rank))
        self.keeper.keep(compared(dumps))

    def answer(self, rank: int | None = None) -> Answer:
        """Say what the first cause is in what was read so far, or in what one rank said."""
        kept = self.keeper.kept(rank)
        return judged(kept, suspects(kept, self.signs), tuple(self.faults))


def examination(checks: Iterable[Check]) -> Examination:
    """Prepare to look for the signs of these checks."""
    signs = declared(checks)
    beside = (pattern for each in signs for pattern in each.sign.beside)
    return Examination(signs, Keeper(finder((each.sign.pattern for each in signs), beside)))


def explain(logs: Iterable[tuple[Origin, Iterable[bytes]]], checks: Iterable[Check]) -> Answer:
    """Read all logs, each an origin and its bytes in blocks, and find the first cause."""
    examined = examination(checks)
    for origin, blocks in logs:
        examined.read(origin, blocks)
    return examined.answer()
