"""Puts lines together that belong together: the tracebacks of each process, however they are interleaved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ddpdoctor.logs.read.pictured import Pictured
from ddpdoctor.logs.records import ANNOUNCES, Frame, Kind, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.logs.read.lines import Line
    from ddpdoctor.logs.read.sources import Origin

HEADER = re.compile(r"Traceback \(most recent call last\)")
FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
# The last line of a traceback, and what it must look like where no traceback is seen above it.
ERROR = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?::\s|:?$)")
BARE = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Failure)"
    r"|torch\._dynamo\.exc\.[A-Z]\w*):(?:\s|$)"  # Unsupported, BackendCompilerFailed
)
# The name of an exception whose message another process's output has torn off, as threads of C++ and ranks do.
TORN = re.compile(
    r"(?:^|[)'\"])(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception))"
    r"(?=$|[ ]{2}File \"[^\"]+\", line \d+)"
)
ABORT = re.compile(
    r"terminate called (?:after throwing an instance of '(?P<type>[^']+)'|without an active exception)"
    r"|(?:[^\n]{0,60}\] )?logging\.cc:\d+: Unhandled exception: (?P<mangled>\w{1,60})\. what\(\): "  # Ray's
)
MANGLED = {"N3c105ErrorE": "c10::Error", "St13runtime_error": "std::runtime_error", "St9bad_alloc": "std::bad_alloc"}
CHAIN = re.compile(
    r"The above exception was the direct cause|During handling of the above exception|Original Traceback"
    r"|-- Process (?P<process>\d+) terminated with the following error"
)
GROUP = re.compile(r"\s*[|+](?:[ -]|$)")  # the frame around the exceptions of a group
BAR = re.compile(r"\s*[|+](?:-[-+ \d.]*)?[ ]?")
# Where another program, or another part of this one, speaks: no line of an exception's message.
OTHER = re.compile(
    r"\[|\d{4}-\d\d|[IWEF]\d{4} |(?:WARNING|ERROR|INFO|DEBUG|CRITICAL)\b|[\w.-]+:\d+:\d+ \[|[=*-]{8}|\s*\d+%\||"
    r"srun: |slurmstepd: |/\S+: line \d+: |wandb: |\S+\.py:\d+: "
)
IN_ONE_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[\w.<>]+)')
# Ray Train above the traceback of a rank, and torch's distributed checkpoints behind its first words.
ANNOUNCED = re.compile(r"\[Rank (?P<rank>\d+)(?:,\d+)*(?: Error Snippet)?\]:?$")
OF_RANK = re.compile(r"Traceback \(most recent call last\): \(RANK (?P<rank>\d+)\)")
LONGEST = 2000  # lines of a traceback; a recursion is abridged by Python itself
IN_SUMMARY = re.compile(r"\s+traceback : ")  # torchrun's, of a rank that wrote an error file
MARGIN = "  "
MESSAGE = 40  # lines of an exception's message
PATIENCE = 400  # lines of others after which a process that stopped in its traceback says no more


@dataclass(slots=True)
class Open:
    """A traceback of which more lines can come."""

    lines: list[Line]
    said: int = 0
    """How many lines its message has so far; 0 while the stack is printed."""
    touched: int = 0
    error: str = ""
    blank: bool = False
    frames: list[Frame] = field(default_factory=list)
    process: int | None = None
    grouped: bool = False
    margin: str = ""
    """What stands before each line, by way of indentation."""
    pictured: Pictured = field(default_factory=Pictured)


class Assembler:
    """Turns the lines of one source into records; a traceback becomes one when it is complete."""

    def __init__(self, origin: Origin) -> None:
        """Take the name of the source, and the rank and node that it belongs to."""
        self._origin = origin
        self._open: dict[str, Open] = {}
        self._fed = 0
        self._torn: tuple[str, str] | None = None
        """The stream and the name of an exception whose message can come in the next line."""
        self._announced: int | None = None
        """The rank whose traceback the line before announced."""

    @property
    def is_idle(self) -> bool:
        """Whether no traceback is open, so that a line is a record of its own whatever came before."""
        return not self._open and self._torn is None

    def feed(self, line: Line) -> Iterator[Record]:
        """Take the next line and return what it completes."""
        self._fed += 1
        line = self._mended(line)
        if self._fed % PATIENCE == 0:
            for stream in [key for key, each in self._open.items() if each.touched + PATIENCE <= self._fed]:
                yield self._close(stream)
        opened = self._open.get(line.stream)
        if opened is not None:
            if len(opened.lines) < LONGEST and _continues(opened, line.text):
                opened.lines.append(line)
                opened.touched = self._fed
                return
            yield self._close(line.stream)
        announced, self._announced = self._announced, None
        if match := ANNOUNCED.match(line.text):
            self._announced = int(match["rank"])
        if started := _start(line):
            started.touched = self._fed
            started.process = announced if started.process is None else started.process
            self._open[line.stream] = started
        elif line.text:
            yield self._record([line], line.text)

    def _mended(self, line: Line) -> Line:
        """Give the message of an exception its name back, which has got into the line before."""
        torn, self._torn = self._torn, None
        if torn is not None and torn[0] == line.stream and line.text.startswith(": "):
            return replace(line, text=torn[1] + line.text)
        if line.text.endswith(("Error", "Exception")) or "Error  File " in line.text:
            found = TORN.search(line.text)
            self._torn = (line.stream, found["type"]) if found else None
        return line

    def finish(self) -> Iterator[Record]:
        """Yield what is still open."""
        self._torn = None
        for stream in list(self._open):
            yield self._close(stream)

    def _close(self, stream: str) -> Record:
        opened = self._open.pop(stream)
        while len(opened.lines) > 1 and not opened.lines[-1].text.strip():
            opened.lines.pop()
        if len(opened.lines) == 1 and not opened.error:
            return self._record(opened.lines, opened.lines[0].text)
        record = self._record(opened.lines, "\n".join(line.text for line in opened.lines))
        rank = record.rank if opened.process is None else opened.process
        frames = (*opened.pictured.frames, *opened.frames)
        return replace(record, rank=rank, kind=Kind.TRACEBACK, frames=frames, error=opened.error)

    def _record(self, lines: list[Line], text: str) -> Record:
        ranks = (*(line.rank for line in lines), self._origin.rank)
        nodes = (*(line.node for line in lines), self._origin.node)
        moments = (line.moment for line in lines)
        return Record(
            text=text,
            source=self._origin.name,
            line=lines[0].number,
            numbers=tuple(line.number for line in lines),
            rank=next((rank for rank in ranks if rank is not None), None),
            node=next((node for node in nodes if node is not None), None),
            time=next((moment.seconds for moment in moments if moment is not None), None),
        )


def _start(line: Line) -> Open | None:
    """Begin a traceback where the line is the beginning of one, or its middle where the beginning is lost."""
    text = line.text
    if match := HEADER.search(text):
        indent = text[: match.start()] if text[: match.start()].isspace() else ""
        rank = OF_RANK.search(text)
        if not match.start() and IN_ONE_LINE.search(text) and "\\n" not in text:
            return _whole(line)
        return Open(
            [line],
            grouped="Exception Group" in text,
            margin=MARGIN if IN_SUMMARY.match(text) else indent,
            process=int(rank["rank"]) if rank else None,
        )
    if "File" in text and (match := FRAME.match(text)):
        return Open([line], frames=_frames(match))
    if match := ABORT.match(text):
        mangled = match["mangled"]
        return Open([line], said=1, error=match["type"] or MANGLED.get(mangled, mangled) or "abort")
    if match := BARE.match(text):
        return Open([line], said=1, error=match["type"])
    return None


def _whole(line: Line) -> Open:
    """Return a traceback whose line breaks somebody took out; the last exception that it names is its own."""
    errors = [match["type"] for match in re.finditer(rf"(?<![\w.]){BARE.pattern}", line.text)]
    frames = [frame for match in IN_ONE_LINE.finditer(line.text) for frame in _frames(match)]
    return Open([line], said=1, error=errors[-1] if errors else "", frames=frames)


def _continues(opened: Open, text: str) -> bool:
    text = text.removeprefix(opened.margin)
    if opened.grouped and GROUP.match(text):
        _in_stack(opened, BAR.sub("", text, count=1))
        return True
    if match := CHAIN.search(text):
        opened.said, opened.blank = 0, False
        opened.process = int(match["process"]) if match["process"] else opened.process
        return True
    return _in_message(opened, text) if opened.said else _in_stack(opened, text)


def _in_stack(opened: Open, text: str) -> bool:
    if match := FRAME.match(text):
        opened.frames += _frames(match)
        return True
    if opened.pictured.takes(text):
        return True
    if not text or text[0].isspace() or HEADER.search(text):
        return True
    if not OTHER.match(text) and (match := ERROR.match(text)):
        opened.error, opened.said = match["type"], 1
        return True
    return False


def _in_message(opened: Open, text: str) -> bool:
    if not text.strip():
        opened.blank = True
        return opened.said < MESSAGE
    if HEADER.search(text):  # one that was not announced belongs to somebody else, unless a message quotes it
        if not text.startswith(("Original", " ", "\t")):
            return False
        opened.said, opened.blank = 0, False
        return True
    if opened.lines[0].number == 1 and not HEADER.search(opened.lines[0].text) and (match := FRAME.match(text)):
        opened.frames += _frames(match)  # somebody wrote the exception above its frames
        return True
    announced = opened.said == 1 and ANNOUNCES.search(opened.lines[-1].text)
    opened.said += 1
    if OTHER.match(text) or (BARE.match(text) and not announced) or opened.said > MESSAGE:
        return False
    return not opened.blank or text[0].isspace()


def frames_in(text: str) -> tuple[Frame, ...]:
    """Return the frames of a traceback that is at hand as a whole."""
    return tuple(frame for match in FRAME.finditer(text) for frame in _frames(match))


def _frames(match: re.Match[str]) -> list[Frame]:
    return [Frame(match["file"], int(match["line"]), match["function"] or "<module>")]
