"""A module of Transformer Engine runs twice within one fp8_autocast, and its scales are reduced over the ranks.

## What happens

With float8 the largest values of each module's tensors are exchanged between the ranks of `fp8_group` where the
`fp8_autocast` region is entered and left, once for each module. A region around a loop, or a module that is called for
two inputs within one region, ends with "AssertionError: Same module is being invoked more than once inside an
`fp8_autocast` region when using FP8 with amax reduction".

## How to be sure

The traceback names the module's call; look for the `with fp8_autocast` above it, and what else in its block calls the
module.

## How to mend it

Enter the region once for each forward of the model. Where a module has to run twice in it, give the recipe
`reduce_amax=False`, or copy the module.

## Versions and sources

Transformer Engine 0.7 to 1.2; later versions allow it. No version of torch changes it. Source:
NVIDIA/TransformerEngine#93; not run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1599", Severity.ERROR)


@log_pattern(r"Same module is being invoked more than once inside an `?fp8_autocast`? region")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The words are of Transformer Engine alone."""
    yield Finding(
        "a module of Transformer Engine runs twice within one fp8_autocast, whose scales are exchanged once",
        (record.proof(match, "one forward of the model in each fp8_autocast region"),),
        Fix(
            "enter the region in each step, around one forward",
            diff="-with te.fp8_autocast(enabled=True, fp8_group=group):\n"
            "-    for batch in loader:\n-        model(batch)\n"
            "+for batch in loader:\n+    with te.fp8_autocast(enabled=True, fp8_group=group):\n+        model(batch)",
        ),
        record.place,
    )
