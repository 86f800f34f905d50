"""The checkpoint was saved from a GPU that this machine does not have.

## What happens

A tensor is saved with its device, and torch.load puts it back there. A file of cuda:3 cannot be loaded this way where
there are two GPUs, or none: "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2".
It is usual on a smaller machine, on the laptop where a model is looked at, and under a launcher that shows each rank
one GPU.

## How to be sure

The message has both numbers, the device that the file names and the number of devices that the process sees; or it
says that `torch.cuda.is_available()` is False. `python -c "import torch; print(torch.cuda.device_count())"`, started
in the same way as the script, prints the second one.

## How to mend it

Pass `map_location="cpu"` to torch.load. It is right for every machine and every rank: `load_state_dict` copies onto
the device where the model's parameters are.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/serialization.py, _validate_device; torch.load documentation,
"map_location".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP829", Severity.ERROR)


@log_pattern(
    r"Attempting to deserialize object on (?:a )?(\w+) device (?:(\d+) but torch\.\w+\.device_count\(\) is (\d+)"
    r"|but torch\.\w+\.is_available\(\) is False)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read both numbers, or that there is no such device."""
    kind, saved, there = match.groups()
    where = f"{kind} device {saved}" if saved else f"a {kind} device"
    has = f"the process sees {there}, numbered from 0" if there else "the process sees none"
    yield Finding(
        f"the checkpoint was saved from {where}, and {has}",
        (record.proof(match, "a device that is there"),),
        Fix(
            "load onto the CPU; load_state_dict copies to where the model is",
            diff='-torch.load(path)\n+torch.load(path, map_location="cpu")',
        ),
        record.place,
    )
