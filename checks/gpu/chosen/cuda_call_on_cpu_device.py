"""A function of torch.cuda is given a device that is no GPU.

## What happens

`torch.cuda.set_device("cpu")`, `torch.cuda.synchronize(device)`, `torch.cuda.memory_allocated(device)` and their like
take GPUs only. A script that chooses `device = "cuda" if torch.cuda.is_available() else "cpu"` and then calls them all
the same ends with "Expected a cuda device, but got: cpu" as soon as it runs without a GPU: on a laptop, over gloo, on a
host whose driver is gone.

## How to be sure

The message names the device. `python -c "import torch; print(torch.cuda.is_available())"` tells whether a GPU is seen
at all: if it should be, that is what is to be mended. Where the line is one of bitsandbytes, or of another package,
that package was given a tensor of the CPU: the weights that it is to quantize, or an input.

## How to mend it

Call it under `if device.type == "cuda":`, with `device = torch.device(...)`. What a package works on is moved to the
rank's own GPU, all of it: no `device_map` that leaves a part on the CPU, no offload.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's torch/cuda/_utils.py, `_get_device_index`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP243", Severity.ERROR)
PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](\w+)")
CALL = re.compile(r"torch\.cuda\.\w+\([^()\n]*\)")


@log_pattern(r"ValueError: Expected a (?:cuda|'cuda') device,? but got: ?(cpu)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the device off the message, and the call off the line."""
    caller = next((each for each in reversed(record.frames) if "torch" not in re.split(r"[/\\]", each.file)), None)
    package = PACKAGE.search(caller.file) if caller else None
    if package:
        yield _by_a_package(record, match, package[1])
        return
    found = CALL.search(record.text)
    call = found[0] if found else "torch.cuda.set_device(device)"
    yield Finding(
        f"{call} is given the device {match[1]}" if found else f"torch.cuda is given the device {match[1]}",
        (record.proof(match, "a GPU, or no call where there is none"),),
        Fix(
            "call it only where the device is a GPU",
            diff=f'-{call}\n+if torch.device(device).type == "cuda":\n+    torch.cuda.set_device(device)'
            if "set_device" in call
            else f'-{call}\n+if torch.device(device).type == "cuda":\n+    {call}',
        ),
        record.place,
    )


def _by_a_package(record: Record, match: re.Match[str], package: str) -> Finding:
    return Finding(
        f"{package} is given a tensor of the {match[1].upper()} for a function of torch.cuda",
        (record.proof(match, "a tensor of the rank's GPU"),),
        Fix(
            "let all of the model, and its inputs, lie on the rank's own GPU",
            diff='+print([name for name, each in model.state_dict().items() if each.device.type != "cuda"])',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a part of the model was left on the CPU: by device_map, an offload, or to load it with less memory",
                "an input, or a buffer that is no part of the state dict, was not moved",
                "this process sees no GPU",
            ),
            'python -c "import torch; print(torch.cuda.is_available())"   # as the ranks are started',
        ),
    )
