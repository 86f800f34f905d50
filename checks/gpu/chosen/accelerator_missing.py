"""A function of torch.accelerator is called where no accelerator is.

## What happens

`torch.accelerator.set_device_index(local_rank)`, `current_device_index()`, `synchronize()` and their like end with
"Cannot access accelerator device when none is available" where this torch sees no GPU or other accelerator: a CPU build
of torch, a container without its GPUs, a driver that is gone, a run over gloo on a laptop.
`torch.accelerator.current_accelerator()` then returns None, and `current_accelerator().type` is an AttributeError.
FullyShardedDataParallel asks it as well, for a model on the CPU that it is given without a `device_id`: "FSDP needs a
non-CPU accelerator device, but no accelerator device is detected".

## How to be sure

    python -c "import torch; print(torch.__version__, torch.accelerator.is_available())"

A version that ends in `+cpu` is a build for the CPU alone; `ddpdoctor check` names what hides a GPU that is there.

## How to mend it

If a GPU should be seen, mend that. A script that is to run without one asks first: `if
torch.accelerator.is_available():`, and takes the backend gloo and the device cpu else. FSDP shards on the CPU where it
is told to: `FSDP(model, device_id=torch.device("cpu"))`.

## Versions and sources

torch.accelerator is new in torch 2.6. Sources: aten/src/ATen/DeviceAccelerator.cpp, `getAccelerator`;
torch/distributed/fsdp/_init_utils.py, `_init_device_handle`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP246", Severity.ERROR)
CALL = re.compile(r"^\s+(?P<call>torch\.accelerator\.\w+\(.*\))$", re.MULTILINE)


@log_pattern(r"Cannot access accelerator device when none is available")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the call off the traceback."""
    found = CALL.search(record.text)
    call = found["call"] if found else "torch.accelerator.set_device_index(local_rank)"
    yield Finding(
        f"{call} is called, and this torch sees no accelerator"
        if found
        else "torch.accelerator is asked for a device, and this torch sees none",
        (record.proof(match, "a GPU, or no call where there is none"),),
        Fix(
            "let torch see the GPU, or call it only where there is one",
            command='python -c "import torch; print(torch.__version__, torch.accelerator.is_available())"; '
            "ddpdoctor check",
            diff=f"-{call}\n+if torch.accelerator.is_available():\n+    {call}",
        ),
        record.place,
        ambiguity=_why("the machine has none, and the script does not ask"),
    )


@log_pattern(r"FSDP needs a non-CPU accelerator device, but no accelerator device is detected")
def for_fsdp(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report a model on the CPU that FSDP would shard on an accelerator."""
    yield Finding(
        "FullyShardedDataParallel looks for an accelerator to shard the model on, and this torch sees none",
        (record.proof(match, "a GPU, or a device_id that says cpu"),),
        Fix(
            "let torch see the GPU; to train on the CPU, over gloo, tell FSDP so",
            diff='-model = FSDP(model, ...)\n+model = FSDP(model, device_id=torch.device("cpu"), ...)',
        ),
        record.place,
        ambiguity=_why("the machine has none, and the training is to run on the CPU"),
    )


def _why(without: str) -> Ambiguity:
    """Return why torch may see no accelerator; at last, in these words, that there is none."""
    return Ambiguity(
        (
            "this torch is a build without the accelerator's support (a version that ends in +cpu)",
            "the process sees none: driver, container, CUDA_VISIBLE_DEVICES, a job without GPUs",
            without,
        ),
        'python -c "import torch; print(torch.__version__, torch.version.cuda)"; nvidia-smi -L',
    )
