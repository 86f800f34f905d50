"""The data set uses CUDA, and the DataLoader's workers are forked.

## What happens

A worker of a DataLoader is a forked copy of the rank, which has used the GPU already; CUDA refuses to work there:
"RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the
'spawn' start method". Usual causes: `.cuda()` or `.to(device)` in `__getitem__` or in `collate_fn`, tensors that were
put on the GPU in `__init__`, a model that makes features, a library such as spconv that voxelises on the GPU, or
`torch.set_default_device("cuda")`.

## How to be sure

The frames `_worker_loop` or "in DataLoader worker process" stand above the message, and with
`num_workers=0` it is gone.

## How to mend it

Give CPU tensors out of the data set, and move the batch in the training loop; or
`multiprocessing_context="spawn"` for the loader, which starts slowly.

## Versions and sources

Holds for all versions of torch on Linux. Source: torch/cuda/__init__.py, and PyTorch documentation, "Multi-process
data loading".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from ._forked import LOADER, MESSAGE, PROCESS

AILMENT = Ailment("DDP455", Severity.ERROR)


@log_pattern(MESSAGE, context=(LOADER,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the worker by its frames."""
    if found := re.search(LOADER, record.text):
        yield _finding(record, match, (record.proof(found),))
    elif other := log.first(LOADER):
        yield _finding(record, match, (other[0].proof(other[1]),))


@log_pattern(MESSAGE, context=(LOADER, PROCESS))
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open whose process it is, where the traceback is missing."""
    if log.first(LOADER) or log.first(PROCESS):
        return
    ambiguity = Ambiguity(
        (
            "the data set or collate_fn uses CUDA in a worker of the DataLoader",
            "CUDA was used before the ranks were forked (cuda-before-fork)",
        ),
        "DataLoader(..., num_workers=0): gone with it, then the data set; still there, then the fork of the ranks",
    )
    yield _finding(record, match, (), ambiguity)


def _finding(
    record: Record, match: re.Match[str], shown: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    return Finding(
        "a forked worker of the DataLoader uses CUDA" if shown else "a forked process uses CUDA",
        (record.proof(match, "CPU tensors from the data set"), *shown),
        Fix(
            "give CPU tensors out of the data set, and move the batch in the training loop",
            diff="-return torch.tensor(x).cuda()\n"
            "+return torch.tensor(x)\n"
            " for batch in loader:\n"
            "+    batch = batch.to(device, non_blocking=True)",
        ),
        record.place,
        ambiguity=ambiguity,
    )
