"""How the lines of one source are laid out, as far as it is learnt from its tracebacks.

Collectors, pagers and people put things around what a program printed: a name before each line, JSON around it, a line
break where the terminal ended. Two lines of a traceback in a row prove such a margin, whatever it is made of: its
header and a frame, or, where the header is lost, a frame and its line of code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ddpdoctor.logs.read.json_lines import Said, is_structure, said_in, said_in_field
from ddpdoctor.logs.read.lines import Line, decoded, parsed

HEADER = "Traceback (most recent call last)"
FRAME_BYTES = b' File "'
FRAME_BEGINS = '  File "'
FRAME = re.compile(r'  File "[^"]+", line \d')
CODE = re.compile(r" {4}\S")
CUT_FRAME = re.compile(r'\s*(?:\[rank\d+\]:\s*)?File "[^"]*(?:"(?:, ?(?:l(?:i(?:n(?:e(?: \d*)?)?)?)?)?)?)?$')
WHOLE_FRAME = re.compile(r'File "[^"]+", line \d+, in \S')
AHEAD = 1 << 13  # bytes in which the second line of a traceback is looked for
NEAR = 40  # lines: others can stand between
MARGINS = 64  # that are remembered, one for each pod
LONGEST = 160  # characters of a margin
NARROWEST, WIDEST = 40, 400  # columns of a terminal
FOLDED = 30  # lines of a terminal that one line takes
# A warning tells of what was handled: its traceback is left as it is.
WARNED = re.compile(r"\bWARN|\bDEBUG\b|^\[?W\d{4} ")
LOGGED = re.compile(r"\b(?:ERROR|CRITICAL)\b|^\[?[EF]\d{4} ")
CLOCK = re.compile(r"\d{2,4}[-/]\d\d(?:[-/]\d\d)?|\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?")
RANK = re.compile(r"(?i:rank)[ :=_-]{0,2}(\d+)")
LINE_NUMBER = re.compile(r"\s*(?:[Ll]ine |[Ll])?\d+[:|.)\s]*")
NUMBER = re.compile(r"\d+")
COUNTED = 3  # lines that have to go on counting


@dataclass(slots=True)
class Layout:
    """Turns the bytes of a line into what was said in it; learns as it goes."""

    _margins: list[tuple[re.Pattern[str], bool]] = field(default_factory=list)
    """What stands before each line, and whether it counts the lines."""
    _is_array: bool = False
    """A JSON array is printed, one field a line."""
    _width: int = 0
    """The columns of the terminal that broke the lines; 0 where none did."""

    def end(self, block: bytes, begin: int, stop: int) -> int:
        """Return where a line really ends that a terminal broke: ``stop`` is where its first piece does."""
        if self._width:
            return self._unbroken(block, begin, stop)
        if FRAME_BYTES not in block[begin:stop] or not CUT_FRAME.match(first := decoded(block[begin:stop])):
            return stop
        more = _line_end(block, stop + 1)
        rest = decoded(block[stop + 1 : more])
        if WHOLE_FRAME.search(first + rest) and NARROWEST <= len(first) <= WIDEST:
            self._width = _columns(block[begin:stop])
            return self._unbroken(block, begin, stop)
        return more if WHOLE_FRAME.search(f"{first} {rest}") else stop

    def _unbroken(self, block: bytes, begin: int, stop: int) -> int:
        piece = begin
        for _ in range(FOLDED):
            if _columns(block[piece:stop]) != self._width or stop + 1 >= len(block):
                break
            piece, stop = stop + 1, _line_end(block, stop + 1)
        return stop

    def lines(self, raw: bytes, number: int, block: bytes = b"", behind: int = 0) -> Iterator[Line]:
        """Yield the lines in a line: one, but several where it is JSON. What follows it begins ``behind``."""
        text = decoded(raw.replace(b"\r", b"").replace(b"\n", b"" if self._width else b" ") if b"\n" in raw else raw)
        said = self._said(text)
        if said is None:
            line = parsed(text, number)
            yield self._without_margin(line, block, behind)
            return
        who = "" if said.rank is None and said.node is None else f"{said.rank} {said.node}"
        who += f" {number}" if len(said.texts) > 1 else ""  # what one object holds does not go on in the next
        for each in said.texts:
            line = parsed(decoded(each.encode()), number)
            yield self._without_margin(
                replace(
                    line,
                    rank=said.rank if line.rank is None else line.rank,
                    node=line.node or said.node,
                    moment=line.moment or said.moment,
                    stream=who + line.stream,
                    is_logged=said.is_logged,
                ),
                block,
                behind,
            )

    def _said(self, text: str) -> Said | None:
        if text[:1] in "{ \t[]}":
            if (said := said_in(text)) is not None:
                return said
            if (said := said_in_field(text)) is not None:
                self._is_array = True
                return said
            if self._is_array and is_structure(text):
                return Said(())
        return None

    def _without_margin(self, line: Line, block: bytes, behind: int) -> Line:
        for margin, counts in self._margins:
            if match := margin.match(line.text):
                return _freed(line, match[0], counts=counts)
        at, following = _begins(line.text)
        if 0 < at < LONGEST and len(self._margins) < MARGINS:
            before = line.text[:at]
            margin = re.compile(re.sub(r"\d+", r"\\d+", re.escape(before.rstrip())) + r"(?: |$)")
            is_margin = before.strip() not in {"", "|"}  # a group's own frame, see tracebacks
            if not before.strip():
                margin, is_margin = re.compile(re.escape(before)), _is_indented(block, before)
            if is_margin and not WARNED.search(before) and _is_repeated(margin, following, block, behind):
                self._margins.append((margin, _counts_lines(margin, before, block, behind)))
                return _freed(line, before, counts=self._margins[-1][1])
        return line


def _begins(text: str) -> tuple[int, re.Pattern[str]]:
    """Return where a traceback, or what is left of one, begins in a line (-1 for nowhere), and what must follow it."""
    if (at := text.find(HEADER)) >= 0:
        return at, FRAME
    at = text.find(FRAME_BEGINS)
    return at if at > 0 and FRAME.match(text, at) else -1, CODE


def _is_repeated(margin: re.Pattern[str], following: re.Pattern[str], block: bytes, behind: int) -> bool:
    """Whether a frame stands behind the same margin in one of the next lines, or its code in the very next one."""
    ahead = block[behind : behind + AHEAD].split(b"\n", NEAR)[:NEAR]
    for raw in ahead[:1] if following is CODE else (each for each in ahead if FRAME_BYTES in each):
        text = parsed(decoded(raw), 0).text
        if (match := margin.match(text)) and following.match(text, match.end()):
            return True
    return False


def _is_indented(block: bytes, by: str) -> bool:
    """Whether a short text is indented as a whole, as what people paste is."""
    rows = block.split(b"\n") if len(block) <= AHEAD else []
    return bool(rows) and all(not row.strip() or row.startswith(by.encode()) for row in rows)


def _counts_lines(margin: re.Pattern[str], before: str, block: bytes, behind: int) -> bool:
    """Whether the margin is the number of the line, as editors and pagers write it: it grows with each."""
    if not LINE_NUMBER.fullmatch(before):
        return False
    texts = (parsed(decoded(raw), 0).text for raw in block[behind : behind + AHEAD].split(b"\n", COUNTED)[:COUNTED])
    found = [match[0] for text in texts if (match := margin.match(text))]
    numbers = [int(digits) for each in (before, *found) for digits in NUMBER.findall(each)]
    return len(found) > 1 and all(one < other for one, other in itertools.pairwise(numbers))


def _freed(line: Line, margin: str, *, counts: bool = False) -> Line:
    """Return the line without its margin; what varies in that from line to line is no part of the stream."""
    rank = None if counts else RANK.search(margin)
    return replace(
        line,
        text=line.text[len(margin) :],
        rank=line.rank if line.rank is not None or rank is None else int(rank[1]),
        stream=line.stream + (NUMBER if counts else CLOCK).sub("", margin).strip(),
        is_logged=line.is_logged or LOGGED.search(margin) is not None,
    )


def _line_end(block: bytes, begin: int) -> int:
    end = block.find(b"\n", begin)
    return len(block) if end < 0 else end


def _columns(raw: bytes) -> int:
    return len(raw.rstrip(b"\r").decode(errors="replace"))
