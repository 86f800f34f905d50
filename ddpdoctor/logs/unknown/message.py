"""What an exception says: all its lines, those of them that are worth quoting, and the two numbers that do not fit."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from ddpdoctor.logs.handled_errors import GOES_ON

if TYPE_CHECKING:
    from ddpdoctor.logs.records import Record

LONGEST = 1500  # characters of a message
CODE = " " * 4  # before a line of code below a frame, as of another process that printed in between
MORE = 3  # lines of it that are quoted below the first
BESIDE = re.compile(
    r"For debugging consider|Compile with|Set TORCHDYNAMO|(?:CUDA|HIP) kernel errors might|Search for `|Repro command"
    r"|You can suppress this|[-=*~^]{4,}$"
)
"""Lines of a message that say nothing of the cause."""
FRAME = re.compile(r'(?m)^\s*File "')
STACK = re.compile(r"Exception raised from |frame #\d|Stack trace|C\+\+ CapturedTraceback|^\s*File \"")
PAIR = re.compile(
    r"(?P<a>\d{1,12})\)?\]?[^\d\n]{1,40}?\b(?:got|match|vs\.?|but|instead of|differs? from|not equal to|!=|==)\b"
    r"[^\d\n]{0,60}?[(\[]?(?P<b>\d{1,12})(?![\d.]|\s*[,x])"
)
SHARE = re.compile(r"shape '\[(?P<shape>[-\d, ]{1,80})\]' is invalid for input of size (?P<size>\d+)")


def message(record: Record) -> str:
    """Return all that the exception says, from the line that names it on, without C++'s stack."""
    names = list(re.finditer(rf"(?m)^[\s|]*{re.escape(record.error)}(?::|$)", record.text)) if record.error else []
    text = record.text[names[-1].start() if names else 0 :][:LONGEST]
    found = STACK.search(text)
    return text[: found.start()] if found else text


def more_said(record: Record) -> list[str]:
    """Return the lines of a message below its first that tell something of the cause; the first is quoted elsewhere."""
    lines: list[str] = []
    if FRAME.search(record.text, record.text.rfind(f"{record.error}:") + 1):  # of another process, in between
        return lines
    for line in message(record).split("\n")[1:]:
        if line.startswith(CODE):
            continue
        said = line.strip(" |\t")
        if GOES_ON.search(said) or len(lines) == MORE:
            break
        if said and not BESIDE.match(said):
            lines.append(" ".join(said.split()))
    return lines


def share(text: str) -> tuple[int, int, int] | None:
    """Return the two numbers of a message that are to be equal, and how many times the larger holds the smaller."""
    if (found := SHARE.search(text)) is not None:
        sizes = [int(each) for each in found["shape"].split(",") if each.strip() not in {"", "-1"}]
        pair = prod(sizes), int(found["size"])
    elif (found := PAIR.search(text)) is not None:
        pair = int(found["a"]), int(found["b"])
    else:
        return None
    less, more = sorted(pair)
    return (*pair, more // less) if less and more > less and more % less == 0 else None
