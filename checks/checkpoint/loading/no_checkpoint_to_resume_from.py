"""DeepSpeed found no checkpoint to load, and said so in a warning alone.

## What happens

`engine.load_checkpoint(folder)` reads the name of the newest checkpoint from the file `latest` in the folder. Where
there is none (another folder, a job that never came to save, storage that this host does not see) it raises nothing:
it warns, and returns `(None, {})`. A script that does not look at what it returned goes on from the beginning, with
new weights, and says that it has resumed. In the first run of a script that always tries, this is as it should be.

## How to be sure

The warning names the file: "Unable to find latest file at ...". Does it exist on each host?

## How to mend it

    path, client_state = engine.load_checkpoint(folder)
    if path is None and args.resume:
        raise SystemExit(f"{folder} has no checkpoint")

## Versions and sources

Seen with DeepSpeed 0.19.8. Source: deepspeed/runtime/engine.py, `load_checkpoint`. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP1860", Severity.NOTE)


@log_pattern(
    r"Unable to find latest file at (?P<path>[^\n,]{1,500}), if trying to load latest checkpoint",
    role=Role.HARMLESS,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the file that is not there."""
    yield Finding(
        f"load_checkpoint found no checkpoint: {match['path']} is not there, and the training begins anew",
        (record.proof(match, "a checkpoint, unless this is the first run"),),
        Fix(
            "look at what load_checkpoint returns",
            diff="-engine.load_checkpoint(folder)\n+path, state = engine.load_checkpoint(folder)\n"
            '+if path is None and resuming:\n+    raise SystemExit(f"{folder} has no checkpoint")',
        ),
        record.place,
    )
