"""A parameter has another memory layout on another rank.

## What happens

When DDP wraps a model, it compares the strides of the parameters as well as their sizes over all ranks. Where they
differ it raises "appears not to match strides of the same param in process 0", while rank 0 waits. Usual causes:
`channels_last` on some ranks only; weights that one rank loaded from a checkpoint and another rank initialised; a
transposed weight.

## How to be sure

ddpdoctor builds the model on each rank and compares the shape and `p.stride()` of each trainable parameter with rank
0's; it names the first one of equal shape and other strides. By hand, print
`[(n, p.stride()) for n, p in model.named_parameters()]` on each rank before wrapping. The number in the message
counts the parameters that require a gradient, from 0.

The similar warning "Grad strides do not match bucket view strides" is harmless (gradient-strides-warning).

## How to mend it

Best first: give all ranks one layout before wrapping, `model = model.to(memory_format=torch.contiguous_format)`, or
`torch.channels_last` on all of them. Or copy values into the existing parameters in place of replacing the
parameters, as `load_state_dict` does by default.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. The quoted words are those that DDP raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP508", Severity.ERROR)


@probe
def as_built(model: ModelExam) -> Iterator[Finding]:
    """Yield the name of the first parameter of equal shape and other strides."""
    for rank, built in enumerate(model.ranks):
        for here, there in zip(built.trainable, model.model.trainable, strict=False):
            if here.shape == there.shape and here.stride != there.stride:
                yield Finding(
                    f"{here.name} {list(here.shape)} has another memory layout on rank {rank} than on rank 0",
                    (Evidence(f"strides {list(here.stride)}", f"strides {list(there.stride)}", f"rank {rank}"),),
                    Fix(
                        "give all ranks one layout before wrapping",
                        diff="+model = model.to(memory_format=torch.contiguous_format)\n model = DDP(model)",
                    ),
                )
                return


@log_pattern(
    r"(?:params|replicas\[\d+\])\[(\d+)\] in this process with (?:sizes|strides) (\[[\d, ]*\])"
    r" appears not to match strides of the same param in process (\d+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the parameter, by its position among those that require a gradient."""
    yield Finding(
        f"parameter {match[1]} {match[2]} has other strides here than on rank {match[3]}; the sizes are equal",
        (record.proof(match, f"the strides of rank {match[3]}"),),
        Fix(
            "give all ranks one memory layout before DDP wraps the model",
            diff="+for p in model.parameters():\n+    p.data = p.data.contiguous()\n model = DDP(model)",
        ),
        record.place,
    )
