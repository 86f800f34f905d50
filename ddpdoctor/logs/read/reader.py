"""Reads a log into records, in one pass and without holding it: lines that nobody looks for stay bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.logs.read.elastic import Summary
from ddpdoctor.logs.read.jobs import Jobs
from ddpdoctor.logs.read.layout import Layout
from ddpdoctor.logs.read.tracebacks import Assembler

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from ddpdoctor.logs.read.clock import Moment
    from ddpdoctor.logs.read.lines import Line
    from ddpdoctor.logs.read.sources import Origin
    from ddpdoctor.logs.records import Record
    from ddpdoctor.logs.search.finder import Finder

LONGEST = 4 << 20  # bytes of a line that does not end; then what there is of it is a line


TAIL = 1 << 15  # bytes at the end of a source that stay at hand
HEAD = 1 << 13  # and at its beginning


class Reader:
    """Takes the bytes of one source as they come and gives the records that they complete."""

    def __init__(self, origin: Origin, finder: Finder) -> None:
        """Take the source's name, rank and node, and what to look for."""
        self._finder = finder
        self._summary = Summary()
        self._assembler = Assembler(origin)
        self._layout = Layout()
        self._rest = b""
        self._tail = b""
        self._head = b""
        self.origin = origin
        self.lines = 0
        self.jobs = Jobs()
        self.is_blank = True

    def feed(self, data: bytes) -> Iterator[Record]:
        """Take more bytes."""
        self._head += data[: HEAD - len(self._head)]
        self.is_blank = self.is_blank and not data.strip()
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1  # a last \r can be half of a line's end
        if not end and len(data) > LONGEST:
            end = len(data)
        self._rest = data[end:]
        self._tail = (self._tail + data[max(0, end - TAIL) : end])[-TAIL:]
        if end:
            yield from self._read(data[:end])

    def finish(self) -> Iterator[Record]:
        """Yield what is left when no more bytes come."""
        if self._rest:
            self._tail = (self._tail + self._rest)[-TAIL:]
            yield from self._read(self._rest)
            self._rest = b""
        yield from self.pause()

    def pause(self) -> Iterator[Record]:
        """Yield what is complete if nothing more comes for now."""
        for line in self._summary.flush():
            yield from self._assembler.feed(line)
        yield from self._assembler.finish()

    @property
    def last_lines(self) -> tuple[Line, ...]:
        """The last lines of the source, as far as they are at hand."""
        rows = self._tail.split(b"\n")
        numbered = list(enumerate(rows, self.lines - len(rows) + 2))
        kept = numbered[len(self._tail) == TAIL :]
        return tuple(line for number, row in kept for line in self._layout.lines(row, number))

    @property
    def began(self) -> Moment | None:
        """The time of the first line that names one, as far as the first lines do."""
        lines = (line for row in self._head.splitlines() for line in self._layout.lines(row, 0))
        return next((line.moment for line in lines if line.moment is not None), None)

    @property
    def first_failed(self) -> int | None:
        """The rank that torchrun saw failing first, where the source tells."""
        return self._summary.first

    @property
    def statuses(self) -> Mapping[int, int]:
        """The exit statuses of the ranks that torchrun saw failing; negative for a signal."""
        return self._summary.statuses

    @property
    def _is_idle(self) -> bool:
        return self._assembler.is_idle and not self._summary.is_open

    def _read(self, block: bytes) -> Iterator[Record]:
        position = 0
        if not self._is_idle:
            position = yield from self._lines(block, 0)
        for offset in self._finder.offsets(block):
            if offset >= position:
                begin = max(
                    position, block.rfind(b"\n", position, offset) + 1, block.rfind(b"\r", position, offset) + 1
                )
                self.lines += block.count(b"\n", position, begin)
                position = yield from self._lines(block, begin)
        self.lines += block.count(b"\n", position)

    def _lines(self, block: bytes, position: int) -> Generator[Record, None, int]:
        """Read a line, and on to where no traceback is open; return the position behind."""
        while position < len(block):
            end = block.find(b"\n", position)
            end = len(block) if end < 0 else end
            back = block.find(b"\r", position, end - 1)  # a progress bar goes on in the same line
            stop = self._layout.end(block, position, end) if back < 0 else back
            for read in self._layout.lines(block[position:stop], self.lines + 1, block, stop + 1):
                if self.jobs.feed(read):
                    yield from self.pause()
                    self._summary = Summary()
                for line in self._summary.feed(read):
                    yield from self._assembler.feed(line)
            self.lines += block.count(b"\n", position, stop + 1)
            position = stop + 1
            if self._is_idle:
                break
        return position
