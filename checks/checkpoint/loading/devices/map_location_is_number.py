"""torch.load is given a number as map_location.

## What happens

`map_location` is a device, its name, a mapping of names, or a function. A number is taken for a function:
`torch.load(path, map_location=rank)` raises "'int' object is not callable", with a GPU and without one.

## How to be sure

The traceback ends in torch/serialization.py, in `restore_location`.

## How to mend it

`torch.load(path, map_location="cpu")` is right on every rank: `load_state_dict` copies to where the model is. To load
onto the rank's GPU, write `map_location=f"cuda:{local_rank}"`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/serialization.py, `_get_restore_location`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP866", Severity.ERROR)


@log_pattern(
    r"in restore_location\n(?:[^\n]*map_location\(storage, location\)\n)?(?:[ ~^]*\n)?"
    r"TypeError: '(?P<kind>\w+)' object is not callable"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find where torch calls it."""
    yield Finding(
        f"torch.load is given an object of type {match['kind']} as map_location",
        (record.proof(None, "a device, its name, a mapping or a function"),),
        Fix(
            "load onto the CPU; load_state_dict copies to where the model is",
            diff='-torch.load(path, map_location=rank)\n+torch.load(path, map_location="cpu")',
        ),
        record.place,
    )
