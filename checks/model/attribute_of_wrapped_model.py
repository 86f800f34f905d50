"""An attribute of the model is read from its wrapper.

## What happens

DDP and DataParallel forward calls, not attributes: `model.encode(x)` after `model = DDP(model)` raises
"AttributeError: 'DistributedDataParallel' object has no attribute 'encode'". It often shows only at the first
validation or when the checkpoint is written, hours later.

## How to be sure

ddpdoctor reads the file that the factory stands in: a name is bound to `DDP(...)` or
`DataParallel(...)`, and further down in the same block an attribute is read from it that the user's model has
and the wrapper has not. Attributes that the file sets on the wrapper, and what stands in `try` or under
`hasattr`, are left alone. Other files are not read.

## How to mend it

`model.module.encode(x)`. In training, though, whatever computes the loss belongs in forward:
a call through `.module` averages no gradients where the result reaches backward.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Place, Record, Severity, log_pattern, probe

from ._logs import APEX, TRAINER, beside, is_private

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP516", Severity.ERROR)


@probe
def in_the_factorys_file(model: ModelExam) -> Iterator[Finding]:
    """Find the reads that raise."""
    for read in model.source.reads:
        if read.attribute in model.model.attributes:
            yield Finding(
                f"{read.name}.{read.attribute} raises AttributeError: {read.name} is {read.wrapper}(...), "
                "which hides the model's attributes",
                (
                    Evidence(
                        f"{read.name}.{read.attribute}",
                        f"{read.name}.module.{read.attribute}",
                        f"{model.source.file}:{read.line}",
                    ),
                ),
                Fix(
                    "read it from the module inside",
                    diff=f"-{read.name}.{read.attribute}\n+{read.name}.module.{read.attribute}",
                ),
                place=Place(file=model.source.file, line=read.line),
            )


@log_pattern(
    r"'((?:MM)?(?:DataParallel|DistributedDataParallel)|FullyShardedDataParallel)' object has no attribute '(\w+)'",
    context=(TRAINER,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the attribute; what belongs to the wrapper itself, or is hidden by Trainer's own wrapping, is not it."""
    wrapper, name = match[1], match[2]
    if name in APEX or is_private(record, name) or (wrapper == "DataParallel" and beside(record, log, TRAINER)):
        return
    yield Finding(
        f"{name} is read from the wrapper {wrapper}, which hides the attributes of the model",
        (record.proof(match, f"model.module.{name}"),),
        Fix(
            "read it from the module inside: with Accelerate accelerator.unwrap_model(model), else model.module",
            diff=f"-model.{name}\n+model.module.{name}",
        ),
        record.place,
    )
