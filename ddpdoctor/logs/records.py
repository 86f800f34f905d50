"""What a log says, as log patterns read it: records, and the log that they stand in."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.findings import Evidence, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ANNOUNCES = re.compile(r": \S.*:\s*$")  # the end of an exception's line where the next one says what it was
OF_OTHERS = (
    r"(site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|[/\\]Lib[/\\]|^<|\.px[id]$|\.pyx$"
    r"|^torch[/\\](?:_dynamo|autograd|distributed|multiprocessing|nn|optim|utils)[/\\]"  # as torch prints its own
    r"|^\.\.\.[/\\](?:contextlib|functools|os|runpy|shutil|subprocess|threading)\.py$"  # shortened by hand
    r"|\(importlib\._bootstrap\)$"  # a hook of the watch, by the name under which warnings pass it over
    r"|[/\\]bin[/\\](?:accelerate|deepspeed|horovodrun|torchrun)$|\.exe[/\\]__main__\.py$"
)
QUOTED = 300  # characters of a line that a report quotes


class Kind(enum.Enum):
    """What a record is: a line of its own, or a whole traceback (chained ones are one record)."""

    LINE = "line"
    TRACEBACK = "traceback"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback, as Python prints it; ``line`` counts from 1."""

    file: str
    line: int
    function: str

    @property
    def is_users(self) -> bool:
        """Whether it is the user's own code: no installed package, no standard library, no launcher."""
        return not re.search(OF_OTHERS, self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One thing that a program said: a line, or a traceback with all its lines.

    ``text`` has no colours, no rank prefix and no timestamp of a launcher; the lines of a traceback are joined by
    newlines, the exceptions that it ends in among them. ``time`` is in seconds since the epoch (UTC), ``rank`` the
    global rank, ``node`` a host's name; each is None where the log does not tell. ``source`` is the file that it was
    read from and ``line`` the number of its first line there, from 1. A live exception is a record too: its source is
    the rank.
    """

    text: str
    source: str = ""
    line: int = 0
    rank: int | None = None
    node: str | None = None
    time: float | None = None
    kind: Kind = Kind.LINE
    frames: tuple[Frame, ...] = ()
    error: str = ""
    """The type of the exception that a traceback ends in, as printed: ``RuntimeError``, ``torch.OutOfMemoryError``."""
    numbers: tuple[int, ...] = ()
    """The number of each line in the source, where ranks are interleaved; else they follow ``line``."""
    parameters: tuple[str, ...] = ()
    """The names of a model's parameters, as DDP numbers them; of a live exception."""
    path: str = ""
    """The file that the state dict was read from; of a live exception."""

    @property
    def users(self) -> Frame | None:
        """The innermost frame of the user's own code."""
        return next((frame for frame in reversed(self.frames) if frame.is_users), None)

    @property
    def place(self) -> Place:
        """Where it happened: the user's line, the rank, the host."""
        frame = self.users
        return Place(
            file=frame.file if frame else None, line=frame.line if frame else None, rank=self.rank, host=self.node
        )

    @property
    def code(self) -> str:
        """The source line that stands below the innermost frame of the user's own code; empty where none is printed."""
        frame = self.users
        if frame is None:
            return ""
        head = re.escape(f'File "{frame.file}", line {frame.line}')
        shown = list(re.finditer(rf'{head}(?:, in [^\n]*)?\n(?![^\n]*File ")[\s|]*([^\n]+)', self.text))
        codes = [each[1].strip() for each in shown]
        if self.error:  # where nothing stands below the frame; or another process printed in between
            codes = [code for code in codes if not f"{code}:".startswith((f"{self.error}:", "Traceback (most recent"))]
        return codes[-1][:QUOTED] if codes else ""

    def proof(self, match: re.Match[str] | None = None, expected: str = "") -> Evidence:
        """Quote the line that the match lies in (without one, what was raised), and say where it stands.

        What was raised can announce in its first line what the next one says (``backend='inductor' raised:``).
        """
        lines = self.text.splitlines() or [""]
        number = self.text.count("\n", 0, _said(match)) if match else self._raised(lines)
        said = " ".join(lines[min(number, len(lines) - 1)].split())
        if not match and ANNOUNCES.search(said):
            said = " ".join([said, *next((each.split() for each in lines[number + 1 :] if each.strip()), [])])
        counted = self.numbers[number] if number < len(self.numbers) else self.line + number
        where = f"{self.source}:{counted}" if self.line else self.source
        return Evidence(
            said if len(said) <= QUOTED else said[: QUOTED - 3] + "...",
            expected,
            where if self.rank is None or not self.line else f"{where}, rank {self.rank}",
        )

    @property
    def said_at(self) -> int:
        """The number of the line that names the exception, above what else its message says; of a line, its own."""
        number = self._raised(self.text.splitlines() or [""]) if self.error else 0
        return self.numbers[number] if number < len(self.numbers) else self.line + number

    def _raised(self, lines: list[str]) -> int:
        """Find the last line that names the exception, before its notes and what else its message says.

        Of an exception of C++ it is the one that says what it was, above the stack.
        """
        names = re.compile(rf"[\s|]*{re.escape(self.error)}(?::|$)")
        last = len(lines) - 1
        named = next((number for number in range(last, -1, -1) if self.error and names.match(lines[number])), None)
        if named is None:
            named = next((number for number, line in enumerate(lines) if self.error and "what(): " in line), last)
        return named


def _said(match: re.Match[str]) -> int:
    """Return where the words of a match begin, behind the end of the line before that a pattern can begin with."""
    return match.end() - len(match[0].lstrip("\n"))


@dataclass(frozen=True, slots=True)
class Log:
    """Everything that was said and that a declared pattern (of a facet, or beside one) matches, in order."""

    records: tuple[Record, ...]
    matched: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Which records a pattern occurs in, by their positions, for those patterns of which the reader knows it."""
    nodes: tuple[str, ...] = ()
    """The hosts whose output it is, as far as lines or paths name them."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """How many lines each source has."""

    def lines_after(self, record: Record) -> int:
        """Count the lines of its source that stand below a record."""
        last = record.numbers[-1] if record.numbers else record.line + record.text.count("\n")
        return self.lengths.get(record.source, last) - last

    def find(self, pattern: str) -> Iterator[tuple[Record, re.Match[str]]]:
        """Yield the records in which a declared pattern occurs, each with the match."""
        known = self.matched.get(pattern)
        records = self.records if known is None else [self.records[position] for position in known]
        for record in records:
            if match := re.search(pattern, record.text):
                yield record, match

    def first(self, pattern: str) -> tuple[Record, re.Match[str]] | None:
        """Return the first of them."""
        return next(self.find(pattern), None)

    def ranks(self, pattern: str) -> frozenset[int]:
        """Return the ranks that said it."""
        return frozenset(record.rank for record, _ in self.find(pattern) if record.rank is not None)

    def before(self, record: Record, pattern: str) -> tuple[Record, re.Match[str]] | None:
        """Return the first record in which the pattern occurs and that is earlier."""
        for other, match in self.find(pattern):
            if other is record:
                continue
            if self.is_earlier(other, record):
                return other, match
        return None

    def is_earlier(self, other: Record, record: Record) -> bool:
        """Compare the times of one clock; else go by the order of the log, in which clocks are reconciled."""
        if other.time is None or record.time is None or other.time == record.time or other.node != record.node:
            return self.records.index(other) < self.records.index(record)
        return other.time < record.time
