"""The training is over, and a rank does not end.

## What happens

At exit every rank destroys its process groups. NCCL aborts or finalizes a communicator together with its peers. A
rank that goes on (writes a last file, uploads, evaluates alone) lets the others wait, and after 480 s or more their
heartbeat monitors end them: an error exit for a training that was done. Destroying a gloo group while DDP still holds
it can hang, too.

## How to be sure

The heartbeat message comes after the training's last line. The warning "destroy_process_group() was not called before
program exit" by itself is harmless.

## How to mend it

Do the slow work first. Then, as the last thing on every rank, call `dist.barrier()` and
`dist.destroy_process_group()`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Shutdown"; torch's ProcessGroupNCCL.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Role, Severity, log_pattern

from .._heartbeat import ENDED, HEART

AILMENT = Ailment("DDP719", Severity.ERROR)
FIX = Fix(
    "end all ranks together",
    diff="+torch.distributed.barrier()\n+torch.distributed.destroy_process_group()",
)


@log_pattern(HEART, context=(ENDED, HEART))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The monitor speaks after the training's last line."""
    first, ended = log.first(HEART), log.before(record, ENDED)
    if first and first[0] is record and ended:
        yield Finding(
            "the training was over, and a rank hung while it ended",
            (record.proof(match, "the process ends"), ended[0].proof(ended[1])),
            FIX,
            record.place,
        )


@log_pattern(
    r"destroy_process_group\(\) was not called before program exit"
    r"|process group has NOT been destroyed before (?:we destruct ProcessGroupNCCL|it is being destructed)",
    role=Role.HARMLESS,
)
def only_a_warning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """By itself it costs nothing: the process ends."""
    yield Finding(
        "the process ended without destroy_process_group(), which does no harm by itself",
        (record.proof(match, "destroy_process_group() as the last line"),),
        FIX,
        record.place,
        severity=Severity.NOTE,
    )
