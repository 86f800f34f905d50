"""A parameter has another memory layout on another rank.

DDP compares strides as well as sizes and raises "appears not to match strides of the same param in process
0", while rank 0 waits. Usual causes: `channels_last` on some ranks only, weights that one rank loaded from a
checkpoint and another rank initialised, a transposed weight.

How to be sure: ddpdoctor builds the model on each rank and compares `p.stride()`.

How to mend it: give all ranks one layout before wrapping, `model.to(memory_format=torch.contiguous_format)`
or `torch.channels_last`, or copy values into the existing parameters instead of replacing them.

The similar warning "Grad strides do not match bucket view strides" is harmless. Holds for torch 2.2 and
later; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record

if TYPE_CHECKING:
    from ddpdoctor.probe.model_exam import ModelExam

CARD = Card("DDP508", Severity.ERROR, known_as=("ddp-param-stride-mismatch",))


@probe
def as_built(model: ModelExam) -> Iterator[Finding]:
    """Name the first parameter of equal shape and other strides."""
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


@sign(
    r"(?:params|replicas\[\d+\])\[(\d+)\] in this process with (?:sizes|strides) (\[[\d, ]*\])"
    r" appears not to match strides of the same param in process (\d+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the parameter, by its position among those that want a gradient."""
    yield Finding(
        f"parameter {match[1]} {match[2]} has other strides here than on rank {match[3]}; the sizes are equal",
        (record.proof(match, f"the strides of rank {match[3]}"),),
        Fix(
            "give all ranks one memory layout before DDP wraps the model",
            diff="+for p in model.parameters():\n+    p.data = p.data.contiguous()\n model = DDP(model)",
        ),
        record.place,
    )
