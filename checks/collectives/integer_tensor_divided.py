"""A tensor of integers is divided in place.

## What happens

A count (`correct`, `total`) is summed over the ranks by `all_reduce` and then averaged by `/=` or `div_`. The result of
a division is a float, and a tensor of integers has no room for it: "result type Float can't be cast to the desired
output type Long", on every rank. `all_reduce(..., op=ReduceOp.AVG)` of integers is refused, or rounds, likewise.

## How to be sure

Print `tensor.dtype`: `torch.tensor(7)` and `(predicted == labels).sum()` are int64.

## How to mend it

Divide into a new tensor (`mean = correct / world_size`), or make the tensor a float one before it is reduced
(`correct.float()`): a float32 counts exactly up to 16,777,216 only, a float64 far beyond.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's c10/core/ScalarType.h, `canCast`, and TensorIterator.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP745", Severity.ERROR)
IN_PLACE = re.compile(r"^\s*(?P<whole>(?P<name>[\w.\[\]'\"]+)\s*/=\s*(?P<by>[^\n#]+?))\s*$", re.MULTILINE)
METHOD = re.compile(r"(?P<whole>(?P<name>[\w.]+)\.div_\((?P<by>[^\n]+)\))")


@log_pattern(r"RuntimeError: result type (?:Float|Double) can't be cast to the desired output type (?P<type>\w+)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The line divides in place; other operations say the same."""
    found = IN_PLACE.search(record.text) or METHOD.search(record.text)
    if found is None:
        return
    name = found["name"]
    yield Finding(
        f"{name} holds integers ({match['type']}) and is divided in place",
        (record.proof(match, "a division into a new tensor, or a tensor of floats"),),
        Fix("divide into a new tensor", diff=f"-{found['whole']}\n+{name} = {name} / {found['by']}"),
        record.place,
    )
