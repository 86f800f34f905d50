"""An Accelerator was made before notebook_launcher has started the ranks.

## What happens

Accelerate's state is that of the process that makes it: one that was made in a cell, or at the top of a module, holds
for this one process, and ranks that are forked from it would take it over. So notebook_launcher refuses: "the
`Accelerator` should only be initialized inside your training function".

## How to be sure

Search the notebook, and what it imports, for `Accelerator(`, `PartialState(` and `TrainingArguments(`, which makes one.

## How to mend it

Restart the kernel, and make the Accelerator in the function that notebook_launcher is given.

## Versions and sources

Holds for Accelerate 0.5 to 1.x, whatever the torch. Source: accelerate/launchers.py, `notebook_launcher`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP421", Severity.ERROR)


@log_pattern(
    r"ValueError: To (?:launch|train) [^\n]{0,80}notebook, the `Accelerator` should only be initialized inside"
    r"|ValueError: To [^\n]{0,80}`Accelerator` should only be initialized inside your training function"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read notebook_launcher's refusal."""
    yield Finding(
        "an Accelerator was made in this process before notebook_launcher was called",
        (record.proof(match, "none before the training function makes it"),),
        Fix(
            "restart the kernel, and make it in the training function",
            diff="-accelerator = Accelerator()\n def train():\n+    accelerator = Accelerator()\n     ...\n"
            " notebook_launcher(train, num_processes=2)",
        ),
        record.place,
    )
