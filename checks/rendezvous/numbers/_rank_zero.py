"""Signs that several processes are told that they are rank 0."""

from __future__ import annotations

import re

from ddpdoctor.check import Log, Record

LAUNCHER = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)|accelerate launch")
FIXED_OPTION = r"(?<=\s)--(?:local[_-])?rank[ =]0(?!\S)"
FIXED_ARGUMENT = r"init_process_group\([^\n]{0,200}?\brank ?= ?0\b"


def fixed_rank(record: Record, log: Log) -> tuple[Record, re.Match[str]] | None:
    """Find a rank 0 that is written down: in the traceback, or as an option of the script in a launch command."""
    own = re.search(FIXED_ARGUMENT, record.text)
    return (record, own) if own else _option(log) or log.first(FIXED_ARGUMENT)


def _option(log: Log) -> tuple[Record, re.Match[str]] | None:
    for record, match in log.find(FIXED_OPTION):
        before = record.text[: match.start()]
        if LAUNCHER.search(before) and ".py" in before:
            return record, match
    return None
