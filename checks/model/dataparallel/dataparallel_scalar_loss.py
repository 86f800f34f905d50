"""The model gives a scalar to DataParallel.

## What happens

DataParallel gathers the replicas' outputs along the first dimension. Scalars have none: it makes a vector of
them, one for each GPU, and warns "Was asked to gather along dimension 0, but all input tensors were scalars;
will instead unsqueeze and return a vector". With one GPU the same code gives a scalar, with two
`loss.backward()` raises "grad can be implicitly created only for scalar outputs". A criterion with reduction="none"
raises the same, with one GPU too.

## How to be sure

The factory's file uses DataParallel, and the model's first output with the example batch has
no dimension.

## How to mend it

`loss = model(batch).mean()`, which is right with one GPU too; better, train with DDP.

## Versions and sources

Holds for all versions of torch. Source: torch.nn.parallel.scatter_gather.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Role,
    Severity,
    log_pattern,
    probe,
)

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP517", Severity.NOTE)
VECTOR = r"grad can be implicitly created only for scalar outputs"
USED = r"(?<!Distributed)\bDataParallel\b|\b[Dd]ata parallel\b|\bdata_parallel\.py|but all input tensors were scalars"
MEAN = Fix("take the mean of what the replicas return", diff="-loss = model(batch)\n+loss = model(batch).mean()")


@probe
def in_a_step(model: ModelExam) -> Iterator[Finding]:
    """Look at the first output, where the file uses DataParallel."""
    line = model.source.data_parallel
    step = model.steps.alone()[0]
    if line is not None and step.scalar:
        yield Finding(
            f"{model.model.kind} returns a scalar, and DataParallel gathers a vector with one element for each GPU",
            (Evidence(f"output {step.output}", "a first dimension", f"{step.call} on rank 0"),),
            Fix("take the mean of what DataParallel gives", diff="-loss = model(*batch)\n+loss = model(*batch).mean()"),
            place=Place(file=model.source.file, line=line),
        )


@log_pattern(r"Was asked to gather along dimension 0, but all input tensors were scalars", role=Role.HARMLESS)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report that the warning needs no action as long as the losses are averaged."""
    yield Finding(
        "DataParallel gathered a scalar of each GPU into a vector; harmless where the script takes its mean",
        (record.proof(match, "outputs with a batch dimension"),),
        MEAN,
        record.place,
    )


@log_pattern(VECTOR, context=(USED,))
def in_backward(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the vector of losses where the log shows that DataParallel made it."""
    if used := log.first(USED):
        yield _vector(record, match, (used[0].proof(used[1]),))


@log_pattern(VECTOR, context=(USED,))
def in_backward_of_something(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open what made a vector of the loss, where the log does not show it."""
    if not log.first(USED):
        causes = (
            "DataParallel gathered the losses of several GPUs into a vector",
            "the criterion does not reduce (reduction='none')",
        )
        yield _vector(
            record, match, (), Ambiguity(causes, "CUDA_VISIBLE_DEVICES=0 python train.py  # gone: DataParallel")
        )


def _vector(
    record: Record, match: re.Match[str], shown: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    what = "DataParallel gave a vector with a loss for each GPU" if shown else "the loss is no scalar"
    return Finding(
        f"{what}, and backward() was called on it",
        (record.proof(match, "one number"), *shown),
        MEAN,
        record.place,
        ambiguity=ambiguity,
    )
