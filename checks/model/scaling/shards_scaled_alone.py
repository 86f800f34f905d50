"""A GradScaler of one process decides over shards: the ranks leave out different steps.

## What happens

FullyShardedDataParallel (FSDP1) leaves each rank with a part of the gradients. `torch.amp.GradScaler` looks for Inf and
NaN in that part alone. Where a gradient overflows in the part of one rank, that rank leaves the step out and halves its
factor, and the others step: the parts of the weights no longer belong together, the ranks scale their losses by
different factors, and what FSDP adds up is of different sizes. Nothing fails.

## How to be sure

Print `scaler.get_scale()` on each rank: it differs after the first overflow. ddpdoctor sees that torch's own GradScaler
steps an optimizer that holds shards. In a source (`ddpdoctor lint`) one function wraps with FSDP, and makes the scaler
that steps.

## How to mend it

    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    scaler = ShardedGradScaler()

It asks all ranks whether a gradient has overflowed. bfloat16 needs no scaler.

## Versions and sources

Holds for FSDP1 of torch 2.2 and later, seen in a training of torch 2.3 and later; not for NO_SHARD, nor for
`fully_shard` (FSDP2): there the ranks share what GradScaler finds in DTensors. Measured with torch 2.13 CPU, two ranks:
after an overflow in the last parameter the factor is 32768 on one rank and 65536 on the other. Source:
torch.distributed.fsdp.sharded_grad_scaler.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    FSDP,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    Sharded,
    ShardsScaled,
    Training,
    lint,
    place,
    watch,
)

from ._scalers import calls_of_scalers, made_scalers

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1572", Severity.ERROR)
MEND = Fix(
    "let the scaler ask all ranks",
    diff="-scaler = torch.amp.GradScaler()\n"
    "+from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n+scaler = ShardedGradScaler()",
)


@watch(ShardsScaled)
def while_training(event: ShardsScaled, training: Training) -> Iterator[Finding]:
    """Report the first one, where all that FullyShardedDataParallel holds is split over several ranks."""
    sharded = [each for each in training.of(Sharded, pid=event.pid) if each.api == "FullyShardedDataParallel"]
    told = training.of(ShardsScaled)
    if told[0] is not event or not sharded or not all(each.shards and len(each.group) > 1 for each in sharded):
        return
    yield Finding(
        "torch's GradScaler decides on each rank alone, by its part of the gradients, whether to step",
        (
            Evidence(
                f"GradScaler, with a factor of {event.scale:g}, steps shards of {sharded[-1].kind}",
                "ShardedGradScaler, which asks all ranks",
                f"rank {event.rank}",
            ),
        ),
        MEND,
        place(event.site),
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a function that wraps with FSDP, and makes the plain scaler that steps."""
    wraps = script.calls(FSDP)
    if not wraps or "ShardedGradScaler" in script.text or "NO_SHARD" in script.text:
        return
    for wrap in wraps:
        function = script.function(wrap)
        body = function.body if isinstance(function, ast.FunctionDef) else script.module.body
        steps = [each for statement in body for each in calls_of_scalers(script, statement, "step")]
        for made in made_scalers(script, steps):
            if script.function(made) is function and set(script.guards(made)) <= set(script.guards(wrap)):
                yield Finding(
                    "GradScaler looks for overflows in each rank's shard alone: the ranks leave out different steps",
                    (
                        script.seen(made, "ShardedGradScaler, which asks all ranks"),
                        script.seen(wrap),
                        script.seen(steps[0]),
                    ),
                    MEND,
                    script.place(made),
                )
                return
