"""set_epoch is called on something that is no DistributedSampler.

## What happens

`loader.sampler.set_epoch(epoch)` needs a sampler that shuffles by epoch. "'RandomSampler' object has no attribute
'set_epoch'" means more than a failing line: this loader has the plain sampler that DataLoader makes from
`shuffle=True`, so every rank trains on all of the data. On None the sampler was only made for several ranks; a
DataLoader, a BatchSampler or an iterable data set hold the sampler somewhere else, or have none.

## How to be sure

`print(type(loader.sampler), type(loader.batch_sampler))`.

## How to mend it

Give the loader a `DistributedSampler` and call `set_epoch` on it. Where the same script runs alone, ask first: `if
isinstance(loader.sampler, DistributedSampler)`. Accelerate's loaders have a set_epoch of their own; so have those of
Fabric and Lightning, which call it themselves.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP630", Severity.ERROR)

PLAIN = {"RandomSampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler"}


@log_pattern(r"AttributeError: '(?P<type>\w+)' object has no attribute 'set_epoch'")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report a plain sampler, which shards nothing, or an object that is no sampler."""
    kind = match["type"]
    if kind in PLAIN:
        said, fix = f"the loader has a {kind}: each rank goes through all of the data", SHARDED
    elif kind in ("DataLoader", "BatchSampler"):
        said, fix = f"set_epoch is called on a {kind}, and belongs to the sampler in it", INNER
    elif kind == "NoneType":
        said, fix = "there is no sampler here: None", ASK
    else:
        said, fix = f"{kind} has no set_epoch", ASK
    yield Finding(said, (record.proof(match, "a DistributedSampler"),), fix, record.place)


SHARDED = Fix(
    "give each rank its share of the data",
    diff="-loader = DataLoader(dataset, batch_size=32, shuffle=True)\n+sampler = DistributedSampler(dataset)\n"
    "+loader = DataLoader(dataset, batch_size=32, sampler=sampler)\n+sampler.set_epoch(epoch)   # in each epoch",
)
INNER = Fix(
    "call it on the DistributedSampler itself",
    diff="-loader.set_epoch(epoch)\n"
    "+loader.sampler.set_epoch(epoch)   # with a batch_sampler: loader.batch_sampler.sampler",
)
ASK = Fix(
    "call it where there is a DistributedSampler",
    diff="-sampler.set_epoch(epoch)\n+if isinstance(sampler, DistributedSampler):\n+    sampler.set_epoch(epoch)",
)
