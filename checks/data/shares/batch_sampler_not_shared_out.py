"""Lightning cannot share out what a loader or a batch sampler of one's own gives.

## What happens

Under several ranks Lightning and Fabric put a sampler of their own into each loader, one that gives each rank its
share. Where the loader has a batch sampler that is no `torch.utils.data.BatchSampler`, or that cannot be built anew
with another sampler, or where the class of the loader takes no sampler, they cannot, and refuse it: "Lightning can't
inject a (distributed) sampler into your batch sampler", "Trying to inject custom `Sampler`". On one device nothing is
said.

## How to be sure

The message names the class. With `devices=1` the same script trains.

## How to mend it

Take the sharing out over, and tell Lightning that you do: each rank goes through every N-th batch.

    class Buckets(Sampler):
        def __iter__(self):
            batches = self.batches(seed=self.seed + self.epoch)     # the same list on all ranks
            count = len(batches) // self.ranks * self.ranks         # as many for each
            return iter(batches[self.rank:count:self.ranks])

    trainer = Trainer(use_distributed_sampler=False, ...)
    fabric.setup_dataloaders(loader, use_distributed_sampler=False)

Or let the class be a `BatchSampler` whose constructor takes `sampler`, `batch_size` and `drop_last`, and hand all that
to `super().__init__`: then Lightning builds it anew.

## Versions and sources

Seen with Lightning 2.6. Source: lightning/pytorch/utilities/data.py and lightning/fabric/utilities/data.py,
`_dataloader_init_kwargs_resolve_sampler`. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1660", Severity.ERROR)
SHARES = Fix(
    "share the batches out in your own sampler, and tell Lightning that you do",
    diff="+    return iter(batches[rank : len(batches) // world_size * world_size : world_size])\n"
    "+trainer = Trainer(use_distributed_sampler=False, ...)   # of Fabric: setup_dataloaders(loader, the same)",
)


@log_pattern(r"Lightning can't inject a \(distributed\) sampler into your batch sampler")
def of_another_kind(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """It is no BatchSampler of torch."""
    yield Finding(
        "Lightning cannot share out what the loader's own batch sampler gives: it is no BatchSampler of torch",
        (record.proof(match, "a BatchSampler of torch, or use_distributed_sampler=False"),),
        SHARES,
        record.place,
    )


@log_pattern(
    r"Trying to inject (?:custom `Sampler`|parameters|a modified sampler) into the (?P<what>`\w+`|batch sampler)"
)
def without_arguments(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Its constructor does not take, or keep, what is needed to build it anew."""
    what = match["what"].strip("`")
    yield Finding(
        f"Lightning cannot build the {what} anew with a sampler that gives each rank its share: the constructor of its "
        "class does not take what is needed",
        (record.proof(match, "a constructor with sampler among its arguments, which it hands on"),),
        Fix(
            "let the class take what DataLoader takes, and hand it on; or share out by yourself, and tell Lightning",
            diff=" class Buckets(BatchSampler):\n+    def __init__(self, sampler, batch_size, drop_last):\n"
            "+        super().__init__(sampler, batch_size, drop_last)"
            if what == "batch sampler"
            else " class Loader(DataLoader):\n+    def __init__(self, dataset, **kwargs):\n"
            "+        super().__init__(dataset, **kwargs)",
        ),
        record.place,
    )
