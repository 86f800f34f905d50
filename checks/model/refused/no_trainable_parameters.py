"""No parameter of the model requires a gradient.

## What happens

DDP refuses such a module when it is wrapped: "DistributedDataParallel is not needed when a module doesn't
have any parameter that requires a gradient". Usual causes: freezing the whole model where the backbone was
meant, freezing after the new head was attached, or wrapping a frozen teacher as well as the student.

## How to be sure

`sum(p.requires_grad for p in model.parameters())` is 0.

## How to mend it

Unfreeze what is to be trained before wrapping; leave a frozen model unwrapped, each rank can
simply call it.

## Versions and sources

Holds for torch 2.2 and later (before 1.13 an AssertionError); seen with torch 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern, probe

from .._words import counted

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP503", Severity.ERROR)


@probe
def as_built(model: ModelExam) -> Iterator[Finding]:
    """Look for a rank whose model wants no gradient."""
    for rank, built in enumerate(model.ranks):
        if not built.trainable:
            total = len(built.parameters)
            yield Finding(
                f"none of the {counted(total, 'parameter')} of {built.kind} requires a gradient: DDP refuses the model"
                if total
                else f"{built.kind} has no parameters: DDP refuses the model",
                (Evidence(f"0 of {counted(total, 'parameter')} with requires_grad", "at least 1", f"rank {rank}"),),
                Fix(
                    "unfreeze what is to be trained before wrapping; a model that is only called needs no DDP",
                    diff=" model = build_model()\n+model.head.requires_grad_(True)\n model = DDP(model)",
                ),
            )
            return


@log_pattern(
    r"DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient"
    r"|reducer\.cpp:\d+, please report a bug to PyTorch\. Expected at least one parameter"
    r"|tensors\.size\(\) > 0 INTERNAL ASSERT FAILED at \S*reducer\.cpp"
    r"|!tensors\.empty\(\) INTERNAL ASSERT FAILED at \S*reducer\.cpp"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise DDP's refusal, in today's wording and in that of torch before 1.4."""
    yield Finding(
        "the module that DDP is to wrap has no parameter that requires a gradient",
        (record.proof(match, "a module with parameters to train"),),
        Fix(
            "leave a frozen or empty module unwrapped; unfreeze what is to be trained before DDP wraps it",
            diff="-model = DDP(model)\n+if any(p.requires_grad for p in model.parameters()):\n+    model = DDP(model)",
        ),
        record.place,
    )
