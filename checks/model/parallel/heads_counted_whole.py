"""A layer that is split by columns gives each rank a part of its features, and the next line counts all of them.

## What happens

`ColwiseParallel` splits the rows of a layer's weight over the ranks of a group: with two ranks, `wq(x)` has half of the
features on each, which are half of the heads. `view(batch, length, heads, head_dim)` with the number of all heads asks
for as many again: "shape '[4, 10, 4, 8]' is invalid for input of size 640".

## How to be sure

The numbers of the shape, multiplied, are the size times the ranks of the group. ddpdoctor (`ddpdoctor run`) knows which
ranks `parallelize_module` has split layers over.

## How to mend it

Let `view` count the heads that are there, with -1; or divide them where the model is built:

    q = self.wq(x).view(batch, length, -1, self.head_dim)

A layer that is to give the whole on each rank is told so: `ColwiseParallel(output_layouts=Replicate())`.

## Versions and sources

Seen with torch 2.13 CPU, gloo, two ranks. Source: PyTorch tutorial, "Large Scale Transformer model training with Tensor
Parallel". Holds for torch 2.3 and later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Failed, Finding, Fix, Severity, TensorParallel, Training, place, watch

AILMENT = Ailment("DDP1588", Severity.ERROR)
SAID = re.compile(r"shape '\[(?P<shape>\d+(?:, \d+)+)\]' is invalid for input of size (?P<size>\d+)")
FIX = Fix(
    "count the heads that this rank has",
    diff="-q = self.wq(x).view(batch, length, self.heads, self.head_dim)\n"
    "+q = self.wq(x).view(batch, length, -1, self.head_dim)",
)


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Compare what a shape asks for with what there is: as many times as much as ranks compute one model."""
    sizes = {len(each.group) for each in training.of(TensorParallel, pid=event.pid) if len(each.group) > 1}
    match = SAID.search(event.said)
    if match is None or not sizes:
        return
    asked, there = math.prod(map(int, match["shape"].split(", "))), int(match["size"])
    ranks = next((each for each in sizes if asked == there * each), None)
    if ranks is not None:
        yield Finding(
            f"a shape counts all features of a layer of which each of {ranks} ranks has its part (tensor parallel)",
            (
                Evidence(event.said, f"{there} numbers, 1 of {ranks} parts", f"rank {event.rank}"),
                Evidence(f"layers are split over {ranks} ranks", "", "parallelize_module"),
            ),
            FIX,
            place(event.site, rank=event.rank),
        )
