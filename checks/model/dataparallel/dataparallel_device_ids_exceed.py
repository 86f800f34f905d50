"""DataParallel is to use GPUs that are not there.

## What happens

`nn.DataParallel(model, device_ids=list(range(n)))` looks each device up and raises "AssertionError: Invalid device
id" for an index that is not below `torch.cuda.device_count()`. Usual causes: a default of the script (`--ngpu 4`,
`gpu_ids=[0, 1, 2, 3]`) that fits its author's machine; CUDA_VISIBLE_DEVICES, a container or a scheduler that shows
fewer GPUs; indices of the whole machine where those of the visible ones are meant, which always count from 0.

## How to be sure

`python -c "import torch; print(torch.cuda.device_count())"` next to the `device_ids` in the script.
The frames `_check_balance` or `_get_devices_properties` show that DataParallel asked.

## How to mend it

`device_ids=list(range(torch.cuda.device_count()))`, or leave the argument out.

## Versions and sources

Holds for all versions of torch. Source: `get_device_properties` in torch/cuda/__init__.py and
torch/nn/parallel/data_parallel.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from .._logs import beside

AILMENT = Ailment("DDP531", Severity.ERROR)
MESSAGE = r"AssertionError: Invalid device id"
ASKED = r"_check_balance|DataParallel\(|_get_devices_properties|parallel[/\\]data_parallel\.py"


@log_pattern(MESSAGE, context=(ASKED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise it by the frames of DataParallel."""
    if asked := beside(record, log, ASKED):
        yield _finding(record, match, asked)


@log_pattern(MESSAGE, context=(ASKED,))
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open who asked for the device, where the traceback is missing."""
    if not beside(record, log, ASKED):
        ambiguity = Ambiguity(
            (
                "device_ids of DataParallel name a GPU that is not visible",
                "a local rank at or above the number of visible GPUs (more-ranks-than-gpus)",
            ),
            'python -c "import torch; print(torch.cuda.device_count())"',
        )
        yield _finding(record, match, (), ambiguity)


def _finding(
    record: Record, match: re.Match[str], asked: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    return Finding(
        "the script asks for a GPU whose index is not among the visible ones",
        (record.proof(match, "indices below torch.cuda.device_count()"), *asked),
        Fix(
            "use the GPUs that there are",
            diff="-model = nn.DataParallel(model, device_ids=list(range(n_gpu)))\n"
            "+model = nn.DataParallel(model, device_ids=list(range(torch.cuda.device_count())))",
        ),
        record.place,
        ambiguity=ambiguity,
    )
