"""How ``ddpdoctor explain`` reads a pipe, which it passes on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from ddpdoctor.logs.read.lines import ESCAPES_IN_BYTES, UNFINISHED
from ddpdoctor.logs.read.sources import BLOCK, Origin

if TYPE_CHECKING:
    from ddpdoctor.logs.examination import Examination

PIPE = Origin("<stdin>")


def piped(examined: Examination, out: IO[bytes] | None) -> None:
    """Read standard input to its end; where there is an ``out``, what comes is passed on at once."""
    reader = examined.begin(PIPE)
    passed = None if out is None else _Passed(out)
    with _first_interrupt_ignored():
        while data := os.read(sys.stdin.fileno(), BLOCK):
            if passed is not None:
                passed.write(data)
            examined.feed(reader, data)
    examined.feed(reader, b"")


class _Passed:
    """Passes text on; a terminal gets no escape sequences, which a log of strangers can hold."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._held, self._cleans = out, b"", out.isatty()

    def write(self, data: bytes) -> None:
        if self._cleans:
            data = self._held + data
            unfinished = UNFINISHED.search(data)  # the rest of the sequence is in the next piece
            self._held = unfinished[0] if unfinished else b""
            data = ESCAPES_IN_BYTES.sub(b"", data[: len(data) - len(self._held)])
        self._out.write(data)
        self._out.flush()


@contextmanager
def _first_interrupt_ignored() -> Iterator[None]:
    """Stay for what a launcher says while it ends, to which the same Ctrl-C went; a second one ends us, too."""
    before = signal.getsignal(signal.SIGINT)

    def again(_: int, __: Any) -> None:
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, again)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
