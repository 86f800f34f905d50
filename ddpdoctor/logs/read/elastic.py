"""What torchrun writes at the end: the summary of failures, and the error file of each rank."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ddpdoctor.logs.read.clock import find_moment

if TYPE_CHECKING:
    from ddpdoctor.logs.read.lines import Line

FIRST = "(first observed failure)"
FIELD = re.compile(r" {0,4}(?P<name>time|host|rank|exitcode|error_file|traceback)\s{0,6}:\s(?P<value>.*)")


class Summary:
    """Gives each line of a failure in torchrun's summary the rank, host and time that the failure names."""

    def __init__(self) -> None:
        """Begin outside of any summary."""
        self._held: list[Line] = []
        self._is_first = False
        self.first: int | None = None
        """The rank that torchrun saw failing first."""
        self.statuses: dict[int, int] = {}
        """The exit status of each rank that failed; negative for a signal."""

    @property
    def is_open(self) -> bool:
        """Whether lines of a failure are held back."""
        return bool(self._held)

    def feed(self, line: Line) -> Iterator[Line]:
        """Take a line and return what is complete."""
        self._is_first = self._is_first or FIRST in line.text
        match = FIELD.match(line.text)
        if match is not None and (self._held or match["name"] == "time"):
            self._held.append(line)
            if match["name"] != "traceback":
                return
            yield from self.flush()
            return
        yield from self.flush()
        yield line

    def flush(self) -> Iterator[Line]:
        """Yield what is held back."""
        held, self._held = self._held, []
        named = {match["name"]: match["value"] for line in held if (match := FIELD.match(line.text))}
        number = re.match(r"\d+", named.get("rank", ""))
        rank = int(number[0]) if number else None
        if self._is_first and rank is not None:
            self.first, self._is_first = rank, False
        status = re.match(r"-?\d+", named.get("exitcode", ""))
        if status and rank is not None:
            self.statuses[rank] = int(status[0])
        found = find_moment(named.get("time", ""))
        for line in held:
            yield replace(
                line,
                rank=line.rank if rank is None else rank,
                node=named.get("host", line.node),
                moment=found[0] if found else line.moment,
            )


def error_file(text: bytes) -> bytes | None:
    """Return the traceback in an error file, with its time, as a log has it; None where it is no such file."""
    try:
        message = json.loads(text)["message"]
        extra = message["extraInfo"]
        when = datetime.fromtimestamp(int(extra["timestamp"]), timezone.utc)
        return f"{when:%Y-%m-%dT%H:%M:%SZ} {extra['py_callstack']}\n".encode()
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return None
