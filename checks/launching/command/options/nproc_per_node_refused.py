"""torchrun cannot make a number of processes of --nproc_per_node.

## What happens

`--nproc_per_node` is a number, or one of `gpu`, `cpu`, `auto` and the device types that torch knows. `gpu` on a host
where torch sees none ends with "ValueError: Cuda is not available.", another word with "Unsupported nproc_per_node
value": an empty shell variable, `8,8`, `all`. No rank was started.

## How to be sure

torchrun's own traceback has the value. `python -c "import torch; print(torch.cuda.device_count())"` on the same host.

## How to mend it

Give a number. With `gpu` see why torch sees no GPU on this host: `ddpdoctor check` names it.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/run.py, `determine_local_world_size`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP442", Severity.ERROR)

LAUNCHER = r"distributed[/\\]run\.py|determine_local_world_size"


@log_pattern(
    r"ValueError: Unsupported nproc_per_node value: (?P<value>[^\n]*)|ValueError: (?P<none>Cuda) is not available\."
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report what was given, where the message is torchrun's."""
    if match["none"] and not re.search(LAUNCHER, record.text):
        return
    yield Finding(
        "--nproc_per_node=gpu, and torch sees no GPU on this host"
        if match["none"]
        else f"--nproc_per_node={match['value']} is neither a number nor a kind of device",
        (record.proof(match, "a number of processes, one for each GPU"),),
        Fix(
            "give the number",
            command="nvidia-smi -L | wc -l && torchrun --standalone --nproc_per_node=2 train.py",
        ),
        record.place,
    )
