"""How a rank of a job ended: with a value, an exception, its death, or stuck at a stack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

FRAME = re.compile(r'^\s*File "(.+)", line (\d+) in (.+)$')


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The rank's function returned ``value``."""

    rank: int
    output: str
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The rank's function raised; ``frames`` run from the outermost call to the place of the error."""

    rank: int
    output: str
    kind: str
    message: str
    traceback: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Died:
    """The rank's process ended before its function did, by a signal or by an exit."""

    rank: int
    output: str
    signal: int | None
    exitcode: int | None


@dataclass(frozen=True, slots=True)
class Stuck:
    """The rank was still running when the job ended; ``stack`` runs from the innermost frame outwards."""

    rank: int
    output: str
    stack: tuple[Frame, ...]


Outcome = Returned | Raised | Died | Stuck


def main_stack(dump: str) -> tuple[Frame, ...]:
    """Read the main thread's frames from what faulthandler wrote, innermost first.

    The first line of ``dump`` is the main thread's identifier in hexadecimal, as the rank wrote it.
    """
    ident, _, text = dump.partition("\n")
    frames: list[Frame] = []
    inside = False
    for line in text.splitlines():
        if "(most recent call first)" in line:
            if frames:
                break
            inside = int(ident or "0", 16) == int((re.findall(r"0x([0-9a-f]+)", line) or ["0"])[0], 16)
        elif inside and (match := FRAME.match(line)):
            frames.append(Frame(match[1], int(match[2]), match[3]))
    return tuple(frames)
