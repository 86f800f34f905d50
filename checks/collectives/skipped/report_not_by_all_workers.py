"""Some workers of Ray Train do not come to a call in which all of them meet.

## What happens

In `ray.train.report`, `ray.train.collective.barrier` and `broadcast_from_rank_zero` each worker waits for all others,
by default without end. One that returns early, raises and goes on, or reports under `if rank == 0` alone leaves the
others there, or in their next backward. Each minute Ray prints which ranks are missing; with
RAY_TRAIN_COLLECTIVE_TIMEOUT_S it raises BroadcastCollectiveTimeoutError in the end.

## How to be sure

The warning names the missing ranks. `ddpdoctor run` names the lines that all ranks are at, and the condition that one
of them is under.

## How to mend it

Report on all workers, as often on each; the checkpoint may be None on all but one:

    checkpoint = Checkpoint.from_directory(folder) if rank == 0 else None
    ray.train.report(metrics, checkpoint=checkpoint)

## Versions and sources

Source: ray/train/v2/_internal/execution/checkpoint/sync_actor.py and exceptions.py. Seen with Ray 2.60 and
torch 2.13 CPU: one worker that does not report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP780", Severity.ERROR)
REPORT = Fix(
    "let all workers come to it, as often each; the checkpoint can be None on all but one",
    diff="-if ray.train.get_context().get_world_rank() == 0:\n-    ray.train.report(metrics, checkpoint=checkpoint)\n"
    "+ray.train.report(metrics, checkpoint=checkpoint)   # on all workers; checkpoint=None on all but one",
)


@log_pattern(
    r"The workers have been waiting for (?P<seconds>[\d.]+) s for the following ranks to join the `(?P<call>[\w.]+)` "
    r"call: \[(?P<missing>[\d, ]*)\]",
    role=Role.GENERIC,
)
def by_the_warning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what Ray prints each minute; a slow worker is waited for as well."""
    yield Finding(
        f"{match['call']} has waited {float(match['seconds']):.0f} s for rank {match['missing']}",
        (record.proof(match, "all workers in the call"),),
        REPORT,
        record.place,
        severity=Severity.WARNING,
    )


@log_pattern(
    r"The following ranks have not joined the collective operation: \[(?P<missing>[\d, ]*)\]",
    role=Role.GENERIC,
)
def by_the_error(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the error that ends it where a time-out is set."""
    yield Finding(
        f"rank {match['missing']} did not come to a call in which all workers meet, until its time-out",
        (record.proof(match, "all workers in the call"),),
        REPORT,
        record.place,
    )
