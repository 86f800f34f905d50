"""A rank's batch takes another branch of the model, and its gradients come in other buckets.

## What happens

In a model with parts that only some batches use (a vision tower and a text-only batch, experts, auxiliary heads), a
rank whose batch skips a part reduces other buckets than the rest. The collectives have the same number and operation,
and very different sizes: ALLREDUCE of 195812480 elements on one rank, 51123456 on another. Without
TORCH_DISTRIBUTED_DEBUG=DETAIL it is a hang in backward. DeepSpeed's ZeRO-3 compares the order of modules itself:
"disagreement between rank0 and rank7".

## How to be sure

The difference of the sizes is the number of parameters of the part that was skipped. Print
`sum(p.numel() for p in part.parameters())` for the parts of the model, and compare.

## How to mend it

Let every batch use every part, with a dummy input or with zero times its parameters added to the loss; or build
batches in which each rank has every kind of sample.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupWrapper.cpp; torch's DistributedDataParallel documentation,
"find_unused_parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

from ._mismatch import Mismatch, on_mismatch, sides

AILMENT = Ailment("DDP713", Severity.ERROR)


@on_mismatch(Mismatch.BRANCH)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Two flat buckets of gradients, of different sizes."""
    yield Finding(
        "the ranks reduce gradients of different parts of the model: " + "; ".join(map(str, sides(record.text))),
        (record.proof(match, "the same buckets on all ranks"),),
        Fix(
            "let every batch touch every part of the model",
            diff="+loss = loss + 0.0 * sum(p.sum() for p in model.module.vision.parameters())\n loss.backward()",
        ),
        record.place,
    )


@log_pattern(r"RuntimeError: disagreement between rank0 and rank(?P<rank>\d+): rank0: \[(?P<zero>[^\]\n]*)")
def of_deepspeed(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read ZeRO-3's comparison of the modules that were used, where it is one of modules."""
    if "record_parameters" not in record.text and "record_module" not in record.text:
        return
    yield Finding(
        f"rank {match['rank']} used other modules of the model than rank 0, or in another order: ZeRO-3 gathers "
        "parameters in one order on all ranks",
        (record.proof(match, "the same modules in the same order on all ranks"),),
        Fix(
            "let every batch go through every part of the model",
            diff="+if images is None:\n+    images = torch.zeros(1, 3, size, size, device=device)\n"
            " features = model.vision(images)",
        ),
        record.place,
    )
