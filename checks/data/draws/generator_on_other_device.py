"""A sampler draws its order with a generator of another device.

## What happens

`torch.set_default_device("cuda")` (and the older set_default_tensor_type) also moves the `torch.randperm` of samplers
and of random_split to the GPU, while their generators stay on the CPU: "Expected a 'cuda' device type for generator
but found 'cpu'". DistributedSampler makes a generator on the CPU in each epoch, so it fails in the first pass.

## How to be sure

The message says which device the operation had and which the generator. `print(torch.get_default_device())`.

## How to mend it

Make loaders and their passes with the default device on the CPU, and move batches and model explicitly. A
RandomSampler also takes `generator=torch.Generator(device="cuda")`; DistributedSampler does not.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/utils/data/distributed.py, `__iter__`; torch/utils/_device.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP633", Severity.ERROR)


@log_pattern(
    r"RuntimeError: Expected an? '(?P<want>\w+)' (?:device type for )?generator(?: device)? but found '(?P<found>\w+)'"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name both devices."""
    yield Finding(
        f"an order is drawn on {match['want']} with a generator of {match['found']}",
        (record.proof(match, "both on one device"),),
        Fix(
            "leave the default device on the CPU where loaders are made and read, and move what is computed on",
            diff='-torch.set_default_device("cuda")\n+device = torch.device("cuda", local_rank)\n+model.to(device)',
        ),
        record.place,
    )
