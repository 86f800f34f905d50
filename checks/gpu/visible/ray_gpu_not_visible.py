"""A Ray worker does not see the GPU that its code asks for.

## What happens

Ray sets CUDA_VISIBLE_DEVICES for each task and actor to the GPUs that it was promised: none without `num_gpus`, one
with `num_gpus=1`, and that one is cuda:0 inside. Code that takes `cuda:{local_rank}`, or runs in a task that asked
for no GPU, fails there though the machine has GPUs: "No CUDA GPUs are available", "CUDA error: invalid device
ordinal", "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False".

## How to be sure

The traceback is that of a Ray worker (`ray::`, RayTaskError); `ray.get_gpu_ids()` printed in the
worker shows what it was given.

## How to mend it

Ask for the GPU, `@ray.remote(num_gpus=1)` or `ScalingConfig(use_gpu=True)`, and use cuda:0 in each
worker; or keep Ray from setting the variable and choose the device yourself.

## Versions and sources

Holds for Ray 1 and 2 with torch 2.2 to 2.13. Source: Ray documentation, "Accelerator support".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP221", Severity.ERROR)
RAY = r"\bray::\w|RayTaskError|RayActorError|\bray[/\\](?:_private|actor|worker)"


@log_pattern(
    r"No CUDA GPUs are available|CUDA error: invalid device ordinal"
    r"|Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
    context=(RAY,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a Ray worker by its frames."""
    shown = _worker(record, log)
    if not shown:
        return
    ordinal = "ordinal" in match[0]
    yield Finding(
        "a Ray worker asks for a GPU by an index that it does not see: its own is cuda:0"
        if ordinal
        else "a Ray worker was given no GPU, and its code uses one",
        (record.proof(match, "cuda:0 inside of the worker" if ordinal else "num_gpus=1 for the worker"), shown),
        Fix(
            "use cuda:0 in each worker" if ordinal else "ask Ray for a GPU",
            diff='-device = f"cuda:{local_rank}"\n+device = "cuda:0"'
            if ordinal
            else "-@ray.remote\n+@ray.remote(num_gpus=1)\nor\n-ScalingConfig(num_workers=n)\n"
            "+ScalingConfig(num_workers=n, use_gpu=True)",
        ),
        record.place,
    )


def _worker(record: Record, log: Log) -> Evidence | None:
    if found := re.search(RAY, record.text):
        return record.proof(found)
    other = log.first(RAY)
    return other[0].proof(other[1]) if other else None
