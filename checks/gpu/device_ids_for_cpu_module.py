"""DistributedDataParallel is given device_ids, and the model is on the CPU.

## What happens

`device_ids=[local_rank]` says on which GPU the model is. One whose parameters are on the CPU was not moved there
before it was wrapped, or there is no GPU and the script passes `device_ids` all the same: the constructor refuses it on
every rank.

## How to be sure

The message ends with the devices of the parameters, here `{device(type='cpu')}`.

## How to mend it

With a GPU, move the model first: `DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])`. Without one,
leave `device_ids` out: `device_ids=[local_rank] if torch.cuda.is_available() else None`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's torch/nn/parallel/distributed.py, the constructor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP244", Severity.ERROR)


@log_pattern(
    r"device_ids and output_device arguments only work with [^\n]{0,80}CPU modules, but got device_ids"
    r" (\[[^\]\n]{0,200}\]), output_device [^\n]{0,80}module parameters \{(?:device\(type=')?cpu(?:'\))?\}"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """All parameters are on the CPU."""
    yield Finding(
        f"device_ids={match[1]} is passed for a model that is on the CPU",
        (record.proof(match, "device_ids=None, or a model that was moved to its GPU"),),
        Fix(
            "move the model to its GPU before it is wrapped; without a GPU pass no device_ids",
            diff="-model = DistributedDataParallel(model, device_ids=[local_rank])\n"
            "+on_gpu = torch.cuda.is_available()\n"
            '+model = model.to(f"cuda:{local_rank}" if on_gpu else "cpu")\n'
            "+model = DistributedDataParallel(model, device_ids=[local_rank] if on_gpu else None)",
        ),
        record.place,
    )
