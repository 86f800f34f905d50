"""DDP sends large buffers from rank 0 to all ranks before each forward.

## What happens

Buffers of a model (the running statistics of BatchNorm, a queue of old features, masks, tables of positions) have no
gradients. DDP keeps them alike by a broadcast from rank 0 before each forward, and the forward waits for it. The
statistics of BatchNorm are small. A queue of 65,536 features, or a mask for the longest sequence in each layer, is
larger than all gradients together.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` shows the line "buffers broadcast". ddpdoctor finds buffers of 4 MiB or more
whose broadcast takes a fifth of the time and 2 ms of a step, on the rank that waits least; what ranks wait for a core
is left out. On a GPU, where it goes on while Python launches kernels, nothing is said.

## How to mend it

Constants need no broadcast, nor what each rank computes alike (a queue of features that were gathered from all ranks):
`DistributedDataParallel(model, broadcast_buffers=False)`, since torch 2.13 `forward_sync_buffers=False`. BatchNorm then
keeps statistics of each rank's own batches, of which rank 0's are saved; `SyncBatchNorm` makes them alike. A constant
that is computed in forward, or is a plain attribute of the module, is no buffer.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's torch/nn/parallel/distributed.py, `_sync_buffers`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LineKind,
    LinesSampled,
    Place,
    Profiled,
    Severity,
    StepsTimed,
    Training,
    human_size,
    watch,
)

from ..._findings.profiled import step_seconds
from .._lines import own
from .._steps import on_cpu

AILMENT = Ailment("DDP911", Severity.NOTE)
LARGE = 4 << 20  # bytes
MUCH, LEAST = 0.2, 0.002  # of the time; seconds of a step
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Measure the broadcast of large buffers on the rank that waits least for it."""
    on_cpu(event)
    measured, sampled = training.complete(Profiled), training.complete(LinesSampled)
    size = max((each.broadcast for each in measured.values()), default=0)
    if size < LARGE or not sampled:
        return
    shares = {rank: _share(told) for rank, told in sampled.items()}
    least = min(shares.values())
    total = step_seconds(measured)
    lines = [line for told in sampled.values() for line in told.sampled if line.kind == LineKind.BUFFERS_BROADCAST]
    if not lines or least < MUCH or least * total < LEAST:
        return
    first = next(iter(measured.values()))
    largest = f", most of them in {first.largest_buffer}" if first.largest_buffer else ""
    yield Finding(
        f"DDP broadcasts {human_size(size)} of buffers before each forward{largest}: {least:.0%} of the time",
        tuple(
            Evidence(
                f"{part:.0%} of the time in the broadcast of {human_size(size)}; {human_size(sum(first.buckets))} of "
                "gradients",
                "" if at else "buffers that are small beside the gradients, or no broadcast",
                f"rank {rank}, {sampled[rank].steps} steps",
            )
            for at, (rank, part) in enumerate(sorted(shares.items())[:SHOWN])
        ),
        Fix(
            "leave the broadcast out where the buffers are constants, or each rank computes them alike: about "
            f"{1e3 * (1 - least) * total:.0f} instead of {1e3 * total:.0f} ms a step",
            diff="-model = DistributedDataParallel(model)\n"
            "+model = DistributedDataParallel(model, broadcast_buffers=False)",
        ),
        Place(file=lines[0].file, line=lines[0].line),
    )


def _share(told: LinesSampled) -> float:
    """Return the share of the broadcast in the time in which the rank did not wait for a core."""
    spent = sum(own(line) for line in told.sampled if line.kind == LineKind.BUFFERS_BROADCAST)
    return spent / max(1, told.nanoseconds - told.waited)
