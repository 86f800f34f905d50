"""A communicator was made for one GPU, and is given a tensor of another one.

## What happens

A communicator of NCCL belongs to the GPU that was current when it was made. vLLM's communicator for new weights says so
when it is given something else: "this nccl communicator is created to work on cuda:1, but the input tensor is on
cuda:0". A rank that forgot `torch.cuda.set_device`, or whose tensors come from another local GPU, ends there; the
server that waits for the weights hangs until its time-out.

## How to be sure

The message has both devices. Print `torch.cuda.current_device()` where the communicator is made, and the tensor's
`.device` where it is sent.

## How to mend it

Make the communicator with the device on which the tensors are, or move them to its device before they are sent.

## Versions and sources

Holds for vLLM 0.6 to 0.15. Source: vLLM, distributed/device_communicators/pynccl.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP227", Severity.ERROR)


@log_pattern(
    r"this nccl communicator is created to work on (?P<own>\S+?),\s+(?:\[\w+\]: )?"
    r"but the input tensor is on (?P<given>\S+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two devices."""
    own, given = match["own"], match["given"]
    yield Finding(
        f"a communicator that was made for {own} is given a tensor on {given}",
        (record.proof(match, f"a tensor on {own}, or a communicator of {given}"),),
        Fix(
            "make the communicator on the GPU of the tensors, or move them to its GPU",
            diff=f"+torch.cuda.set_device({given!r})   # before the communicator is made\n"
            " communicator = PyNcclCommunicator(group, device=torch.cuda.current_device())",
        ),
        record.place,
    )
