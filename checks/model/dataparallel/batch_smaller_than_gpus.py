"""A batch has fewer samples than DataParallel has GPUs.

## What happens

DataParallel splits the first dimension over the GPUs. With fewer samples than GPUs some replicas get nothing;
they are left out, and a forward whose tensors come by keyword or are of unequal length can be called without
an argument ("missing 1 required positional argument" in replica k). It also happens with the last batch of an
epoch.

## How to be sure

The factory's file uses DataParallel, the first dimension of the example batch is smaller than
the number of GPUs that are visible.

## How to mend it

A batch of at least a sample for each GPU, `drop_last=True`, fewer `device_ids`; better, train
with DDP.

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
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

from .._logs import TRAINER, beside

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus, ModelExam

AILMENT = Ailment("DDP518", Severity.WARNING)


@probe
def on_these_gpus(gpus: Gpus, model: ModelExam) -> Iterator[Finding]:
    """Compare the example batch with the number of GPUs, where the file uses DataParallel."""
    count = len(gpus.devices)
    if count < 2:  # noqa: PLR2004 - DataParallel splits over two or more
        raise NotRun(f"needs 2 GPUs, found {count}")
    step = model.steps.alone()[0]
    line = model.source.data_parallel
    if line is not None and step.batch_size is not None and step.batch_size < count:
        yield Finding(
            f"the batch has a first dimension of {step.batch_size} and DataParallel {count} GPUs: "
            f"{count - step.batch_size} get nothing",
            (Evidence(f"{step.batch_size} samples", f"at least {count}", f"{model.batch}"),),
            Fix(
                "use no more GPUs than there are samples, or a larger batch",
                diff="-model = nn.DataParallel(model)\n"
                f"+model = nn.DataParallel(model, device_ids=list(range({step.batch_size})))",
            ),
            place=Place(file=model.source.file, line=line),
        )


FAILED = r"Caught TypeError in replica ([1-9]\d*) on device (\d+)"
MISSING = r"missing \d+ required (?:positional|keyword-only) arguments?: [^\n]+"


@log_pattern(FAILED, context=(MISSING, TRAINER))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a replica that was called without arguments while those before it were not."""
    if (missing := beside(record, log, MISSING)) and not beside(record, log, TRAINER):
        yield _finding(record, match, missing)


@log_pattern(FAILED, context=(MISSING, TRAINER))
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave the cause open where the replica's own error is not in the log."""
    if (
        log.first(MISSING)
        or log.first(TRAINER)
        or record.text.count("TypeError") > 1 + record.text.count("Caught TypeError")
    ):
        return
    ambiguity = Ambiguity(
        (
            f"replica {match[1]} got no share of the batch: its forward misses an argument",
            "a value that only the first replicas get, such as a list that DataParallel does not split evenly",
        ),
        "grep -A 30 'Original Traceback' train.log",
    )
    yield _finding(record, match, (), ambiguity)


def _finding(
    record: Record, match: re.Match[str], missing: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    return Finding(
        f"the batch has too few samples for all GPUs: replica {match[1]} got none, those before it did",
        (record.proof(match, f"a share of the batch for replica {match[1]}"), *missing),
        Fix(
            "drop the short last batch, and choose a batch size that is a multiple of the number of GPUs",
            diff="-DataLoader(dataset, batch_size=n)\n+DataLoader(dataset, batch_size=n, drop_last=True)",
        ),
        record.place,
        severity=Severity.ERROR,
        ambiguity=ambiguity,
    )
