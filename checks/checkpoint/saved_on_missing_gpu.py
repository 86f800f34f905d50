"""The checkpoint was saved from a GPU that this machine does not have.

A tensor is saved with its device, and torch.load puts it back there. A file of cuda:3 cannot be loaded so where there
are two GPUs, or none: "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2". Usual on
a smaller machine, on the laptop where a model is looked at, and under a launcher that shows each rank one GPU.

How to be sure: the message has both numbers.

How to mend it: map_location. `map_location="cpu"` is right for every machine and every rank: load_state_dict copies
onto the device where the model's parameters are.

Holds for torch 2.2 to 2.13. Source: torch/serialization.py, _validate_device; torch.load documentation,
"map_location".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Record

CARD = Card("DDP829", Severity.ERROR)


@sign(
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
