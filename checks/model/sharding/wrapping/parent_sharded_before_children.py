"""fully_shard was given a module before the modules that are inside it.

## What happens

`fully_shard(model)` takes up all parameters that no inner call has taken up before it, as one group. Called on the
whole model first, it leaves nothing for its layers: their parameters are DTensors already. torch 2.13 takes those for
parameters of tensor parallelism and fails in words of its own, "Invariant encountered: value was None when it should
not be", or "FSDP requires the DP and TP mesh to have the same parent mesh"; where it does not, the model is gathered in
one piece for each forward, and the memory that sharding was to save is not saved.

## How to be sure

ddpdoctor sees the calls of `fully_shard` in their order. In a log the last frames are `_init_sharding_spec` and
`_init_sharding_spec_tp` of torch/distributed/fsdp; parameters that tensor parallelism has split over a mesh without
names of its dimensions fail the same way.

## How to mend it

Bottom up: each layer, then the whole.

    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

## Versions and sources

Seen with torch 2.13, gloo, two ranks. Source: PyTorch documentation, torch.distributed.fsdp.fully_shard: "should be
called bottom-up". Holds for torch 2.4 and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Record,
    Severity,
    ShardedInside,
    Training,
    log_pattern,
    place,
    watch,
)

AILMENT = Ailment("DDP1595", Severity.ERROR)
FIX = Fix(
    "shard bottom up: first each layer, then the whole model",
    diff="-fully_shard(model)\n for layer in model.layers:\n     fully_shard(layer)\n+fully_shard(model)",
)
WITHIN = "_init_sharding_spec"


@watch(ShardedInside)
def while_training(event: ShardedInside, training: Training) -> Iterator[Finding]:
    """Tell it once, of the first module that comes too late."""
    if training.of(ShardedInside)[0] is not event:
        return
    yield Finding(
        f"fully_shard is given {event.kind} after {event.outer}, which has it as a part: its parameters are sharded",
        (
            Evidence(f"{event.outer} was given to fully_shard", "the inner modules first", str(event.sharded)),
            Evidence(f"{event.already} parameters of {event.kind} are DTensors", "none is", str(event.site)),
        ),
        FIX,
        place(event.site),
    )


@log_pattern(
    r"TypeError: Invariant encountered: value was None when it should not be"
    r"|FSDP requires the DP and TP mesh to have the same parent mesh"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Only where fully_shard takes up a parameter."""
    if WITHIN in record.text:
        yield Finding(
            "fully_shard was given parameters that are DTensors already: an outer module was sharded before, or tensor "
            "parallelism has split them over a mesh without names of its dimensions",
            (record.proof(match, "plain parameters, or a mesh with mesh_dim_names"),),
            FIX,
            record.place,
        )
