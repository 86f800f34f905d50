"""What the stream can show that a report goes to, and how text is fitted to it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import click

from ddpdoctor.findings import Severity

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
FILE_AND_LINE = re.compile(r"(?P<file>[^\s()\[\]\"',;]+\.\w+):(?P<line>\d+)\b")
LEAST = 12  # columns of a cell that is wrapped


@dataclass(frozen=True, slots=True)
class Style:
    """What a stream can show: by default, what a file or a pipe can.

    ``link`` is the address of a file that a click opens, with ``{host}``, ``{path}`` and ``{line}``; empty where the
    terminal knows no links; ``encoding`` is that of commands to be pasted: all other text is plain ASCII.
    """

    width: int = 100
    colour: bool = False
    link: str = ""
    is_terminal: bool = False
    encoding: str = "ascii"

    def coloured(self, lines: Iterable[str], severity: Severity, words: str = "") -> Iterator[str]:
        """Yield lines of which the first that has these words, by default that of the severity, shows its colour."""
        words = words or str(severity)
        shown = False
        for line in lines:
            if self.colour and not shown and words in line:
                shown = True
                yield line.replace(words, click.style(words, fg=COLOURS[severity], bold=True), 1)
            else:
                yield line

    def heading(self, text: str) -> str:
        """Return a text that others stand below."""
        return click.style(text, bold=True) if self.colour else text

    def wrap(self, text: str, indent: str = "", first: str | None = None) -> Iterator[str]:
        """Yield the lines of a text, broken between words; ``first`` is the indent of its first line.

        A word that is too long, such as a path, stays whole.
        """
        before = indent if first is None else first
        for part in text.splitlines() or [""]:
            lines = textwrap.wrap(
                part,
                self.width,
                initial_indent=before,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            yield from map(self.linked, lines or [before.rstrip()])
            before = indent

    def linked(self, line: str) -> str:
        """Return a line in which each FILE:LINE of a file that is there can be clicked."""
        return FILE_AND_LINE.sub(self._link, line) if self.link else line

    def _link(self, match: re.Match[str]) -> str:
        path = Path(match["file"])
        if not path.is_file():
            return match[0]
        import socket  # here, since few terminals have links

        address = self.link.format(host=socket.gethostname(), path=quote(str(path.absolute())), line=match["line"])
        return f"\x1b]8;;{address}\x1b\\{match[0]}\x1b]8;;\x1b\\"


PLAIN = Style()


def table_text(headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> str:
    """Return a table; where it is wider than ``width``, the cells of its last column are wrapped between words."""
    from tabulate import tabulate

    cells = [[str(cell) for cell in row] for row in rows]
    text = tabulate(cells, headers=headers, disable_numparse=True)
    excess = 0 if width is None else max(map(len, text.splitlines()), default=0) - width
    last = max((len(row[-1]) for row in cells), default=0)
    if excess <= 0 or last - excess < LEAST:
        return text
    for row in cells:
        row[-1] = "\n".join(textwrap.wrap(row[-1], last - excess, break_long_words=False, break_on_hyphens=False))
    return tabulate(cells, headers=headers, disable_numparse=True)
