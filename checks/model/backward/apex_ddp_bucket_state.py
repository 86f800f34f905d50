"""apex's DistributedDataParallel reduces gradients before its buckets exist, or in another order than it noted.

## What happens

`apex.parallel.DistributedDataParallel` learns in the first backward which gradient comes when, and overlaps the
reduction with later backwards. When a step uses other parameters, or a backward ends early, that state is missing or
does not fit: "'DistributedDataParallel' object has no attribute 'buckets_ready_size'", "In epilogue, next_bucket (1)
!= num_buckets (3)", "Some param buckets were not allreduced", "attempting to replace an already-filled bucket slot".
The class has the name of torch's own, which has none of these attributes.

## How to be sure

The attribute is apex's; the script imports DistributedDataParallel from apex.parallel.

## How to mend it

Use `torch.nn.parallel.DistributedDataParallel`, which apex itself recommends; or
`delay_allreduce=True`, which reduces all gradients after the backward.

## Versions and sources

Holds for apex with every torch; torch 2.2 to 2.13 has all of it built in. Source: apex/parallel/distributed.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

from .._logs import APEX

AILMENT = Ailment("DDP533", Severity.ERROR)


@log_pattern(
    r"'DistributedDataParallel' object has no attribute '(\w+)'"
    r"|In epilogue, next_bucket \(\d+\) != num_buckets \(\d+\)"
    r"|Some param buckets were not allreduced"
    r"|self\.param_id_to_bucket\[id\(param\)\]"  # of a KeyError, which tells no more than a number
    r"|attempting to replace an already-filled bucket slot"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise apex's attributes and messages."""
    if match[1] and match[1] not in APEX:
        return
    yield Finding(
        "apex's DistributedDataParallel reduced gradients before its buckets were complete",
        (record.proof(match, "torch's own DDP, or delay_allreduce=True"),),
        Fix(
            "use torch's own DDP",
            diff="-from apex.parallel import DistributedDataParallel as DDP\n"
            "+from torch.nn.parallel import DistributedDataParallel as DDP\n"
            "-model = DDP(model)\n"
            "+model = DDP(model, device_ids=[local_rank])",
        ),
        record.place,
    )
