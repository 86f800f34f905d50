"""notebook_launcher is not told how many processes to start.

## What happens

On Colab and Kaggle with a TPU notebook_launcher knows the number of processes; on GPUs it does not look how many there
are, and asks: "You have to specify the number of GPUs you would like to use, add `num_processes=...` to your call".

## How to be sure

`torch.cuda.device_count()` says how many GPUs the notebook sees; ask it in a terminal, or in the function that is
launched: a notebook that has used CUDA can start no ranks.

## How to mend it

    notebook_launcher(train, num_processes=2)

## Versions and sources

Holds for Accelerate 0.5 to 1.x, whatever the torch (2.2 and later). Source: accelerate/launchers.py,
`notebook_launcher`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP400", Severity.ERROR)


@log_pattern(r"ValueError: You have to specify the number of GPUs you would like to use, add `num_processes=")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read notebook_launcher's question."""
    yield Finding(
        "notebook_launcher is not told how many processes to start",
        (record.proof(match, "num_processes=, one for each GPU"),),
        Fix(
            "say how many: one for each GPU",
            diff="-notebook_launcher(train)\n+notebook_launcher(train, num_processes=2)",
            command="nvidia-smi --list-gpus | wc -l",
        ),
        record.place,
    )
