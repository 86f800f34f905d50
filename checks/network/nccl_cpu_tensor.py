"""A tensor on the CPU goes into a collective of a group that has only NCCL.

A group made with backend nccl moves CUDA tensors only. A CPU tensor raises "No backend type associated with device
type cpu", or "Tensors must be CUDA and dense". Behind it is a metric or a loss that was never moved, a loader's
batch, or a collective of Python objects (broadcast_object_list, all_gather_object): these pickle into a tensor on the
current CUDA device, and fail where the process sees no GPU.

How to be sure: the traceback's line; print the tensor's `device` there.

How to mend it: `tensor.to(local_rank)`; for objects `torch.cuda.set_device(local_rank)` first; or one group for both,
`init_process_group("cpu:gloo,cuda:nccl")`.

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroup.hpp (getBackend) and ProcessGroupNCCL.cpp; torch.distributed
documentation, "Backends".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Record

CARD = Card("DDP341", Severity.ERROR)
OBJECTS = re.compile(
    r"\b(?:broadcast_object_list|all_gather_object|gather_object|scatter_object_list|object_sizes_tensor)\b"
)
BOTH = '-init_process_group("nccl")\n+init_process_group("cpu:gloo,cuda:nccl")'


@sign(r"No backend type associated with device type cpu|Tensors must be CUDA and dense")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the caller; a collective of objects needs another fix than a tensor."""
    objects = OBJECTS.search(record.text)
    if objects:
        what = "a collective of Python objects has no CUDA device to put its bytes on"
        fix = Fix(
            "choose the rank's GPU before it, or have gloo beside NCCL",
            diff=f"+torch.cuda.set_device(local_rank)\nor\n{BOTH}",
        )
    else:
        what = "a tensor on the CPU is given to a collective, and the group has NCCL only"
        fix = Fix(
            "move the tensor to the rank's GPU, or have gloo beside NCCL",
            diff=f'-dist.all_reduce(tensor)\n+dist.all_reduce(tensor.to("cuda"))\nor\n{BOTH}',
        )
    yield Finding(
        what, (record.proof(match, "a CUDA tensor, or a group with a backend for the CPU"),), fix, record.place
    )
