"""fairseq's workers are at different places.

## What happens

fairseq's `all_gather_list` sends Python objects of all workers through one buffer. A worker that is elsewhere, because
it ran out of memory and skipped a batch, or has no batch left, takes part with another tensor: what comes out cannot be
unpickled ("Unable to unpickle data from other workers"). Where the norms of gradients differ, fairseq says so itself:
"Fatal error: gradients are inconsistent between workers", with the norm of each rank.

## How to be sure

Search the logs of all workers for "ran out of memory" and "recovering from OOM" shortly before, and compare the numbers
of batches. Norms that differ from the first update on come from ranks that began with other weights or from parts of
the model that DDP does not reduce.

## How to mend it

Lower --max-tokens where a worker ran out of memory. `--ddp-backend=legacy_ddp` reduces after the whole backward, which
models that use a parameter more than once, or leave some out, want.

## Versions and sources

Holds for fairseq 0.9 to 0.12, whatever the torch. Source: fairseq/distributed/utils.py, `all_gather_list`;
fairseq/trainer.py, `_check_grad_norms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP721", Severity.ERROR)


@log_pattern(
    r"(?P<list>Unable to unpickle data from other workers\. all_gather_list requires all workers)"
    r"|(?P<inner>in all_gather_list\n(?:[^\n]*\n){1,6}?(?:_?pickle\.UnpicklingError|EOFError|KeyError): [^\n]*)"
    r"|Fatal error: gradients are inconsistent between workers"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say which of the two it is, and what remains."""
    yield Finding(
        "a worker of fairseq was elsewhere when the others called all_gather_list"
        if match["list"] or match["inner"]
        else "the gradients of fairseq's workers differ after they were averaged",
        (record.proof(match, "all workers at one place, with the same gradients"),),
        Fix(
            "mend what takes one worker out of step; where it is the model, reduce after the whole backward",
            command="fairseq-train ... --ddp-backend=legacy_ddp",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a worker ran out of memory and skipped its batch",
                "a worker had no batch left",
                "the model uses a parameter several times, or leaves some out, under DDP",
            ),
            "grep -inE 'out of memory|recover from OOM|grad_norm|rank +[0-9]+ =' LOGS_OF_ALL_WORKERS",
        ),
    )
