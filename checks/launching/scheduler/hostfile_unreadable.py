"""DeepSpeed cannot read its hostfile.

## What happens

The launcher ends before it starts a rank: "Hostfile contains a bad entry: node-1: slots=8", "Hostfile contains multiple
entries for node-1", "Hostfile is empty or not formatted correctly". A line is a host's name, a space, and `slots=` with
the number of its GPUs; there is no colon, and each host has one line.

## How to be sure

The launcher quotes the line.

## How to mend it

    node-1 slots=8
    node-2 slots=8

## Versions and sources

Holds for DeepSpeed 0.3 and later, with any torch. Source: deepspeed/launcher/runner.py, `_parse_hostfile`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP435", Severity.ERROR)


@log_pattern(
    r"ValueError: (?P<said>Hostfile contains (?:a bad entry: (?P<line>[^\n]{1,200}?), unable|(?:multiple entries for|"
    r"duplicate hosts)[^\n]{0,200})|Hostfile is empty or not formatted correctly|host [^\n]{1,200} is already defined)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the line that the launcher does not take."""
    line = match["line"]
    yield Finding(
        f"the hostfile has a line that DeepSpeed cannot read: {line}"
        if line and "{" not in line
        else f"DeepSpeed cannot use the hostfile: {match['said'].partition(', unable')[0]}",
        (record.proof(match, "NAME slots=NUMBER, one line a host"),),
        Fix(
            "write each host as its name, a space and its slots",
            diff=f"-{line or 'node-1: slots=8'}\n+{_mended(line or 'node-1: slots=8')}",
        ),
        record.place,
    )


def _mended(line: str) -> str:
    found = re.match(r"\s*([\w.@-]+)", line)
    slots = re.search(r"(?:slots|max_slots)?\s*[=: ]\s*(\d+)\s*$", line)
    return f"{found[1] if found else 'node-1'} slots={slots[1] if slots else 8}"
