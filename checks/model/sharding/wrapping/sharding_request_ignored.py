"""Accelerate was asked for FSDP, and trains with DistributedDataParallel.

## What happens

Accelerate's plugins for FSDP and DeepSpeed need an accelerator. Where the training runs on the CPU (`--cpu`,
`Accelerator(cpu=True)`, a host whose GPUs torch does not see), the request is dropped without a word: each rank holds
the whole model and DDP averages the gradients. What was to be tried out, memory and checkpoints of a sharded model, is
not tried out.

## How to be sure

Print `accelerator.distributed_type`: MULTI_CPU, not FSDP. In a running training (`ddpdoctor run`) Accelerate wraps a
model in DistributedDataParallel while ACCELERATE_USE_FSDP is true; in a source (`ddpdoctor lint`) one call has
`cpu=True` and a plugin.

## How to mend it

Start it where torch sees the GPUs (`python -c 'import torch; print(torch.cuda.device_count())'`); or leave the plugin
out where the CPU is meant.

## Versions and sources

Source: accelerate/state.py, where the plugin is looked at for NVIDIA, XPU, NPU and the like, and not for the CPU. Seen
with accelerate 1.15 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    Ailment,
    Evidence,
    Finding,
    Fix,
    FrameworkSeen,
    Severity,
    keyword,
    lint,
    place,
    watch,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP594", Severity.WARNING)
MEND = Fix(
    "start it where torch sees the GPUs, or leave the plugin out",
    command="python -c 'import torch; print(torch.cuda.device_count())'",
)


@watch(FrameworkSeen)
def while_training(event: FrameworkSeen) -> Iterator[Finding]:
    """Look at what Accelerate wraps, once for the training: rank 0 tells."""
    if event.asked and event.rank == 0:
        yield Finding(
            f"Accelerate was asked for {event.asked}, and wraps the model in DistributedDataParallel",
            (
                Evidence("DistributedDataParallel", event.asked, str(event.site)),
                Evidence("ACCELERATE_USE_FSDP=true", "", f"environment of rank {event.rank}"),
            ),
            MEND,
            place(event.site),
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for an Accelerator on the CPU that is given a plugin."""
    for call in script.calls(ACCELERATOR):
        cpu = keyword(call, "cpu")
        plugin = next((name for name in ("fsdp_plugin", "deepspeed_plugin") if keyword(call, name) is not None), None)
        if plugin is not None and isinstance(cpu, ast.Constant) and cpu.value is True:
            given = keyword(call, plugin)
            if isinstance(given, ast.Constant) and given.value is None:
                continue
            yield Finding(
                f"cpu=True makes Accelerate drop {plugin}: the training is plain DDP",
                (script.seen(call, f"cpu=True or {plugin}"),),
                MEND,
                script.place(call),
            )
