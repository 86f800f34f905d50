"""A tensor on the CPU goes into a collective of a group that has only NCCL.

## What happens

A group made with backend nccl moves CUDA tensors only. A CPU tensor raises "No backend type associated with device
type cpu", or "Tensors must be CUDA and dense". Usual causes: a metric or a loss that was never moved, a loader's
batch, or a collective of Python objects (broadcast_object_list, all_gather_object). Collectives of objects pickle
into a tensor on the current CUDA device, and fail where the process sees no GPU.

Lightning's `self.log(..., sync_dist=True)` averages the value where it lies: what a metric computes on the CPU stays
there. torchmetrics' own `compute()` has synchronised already.

## How to be sure

Look at the line of the traceback, and print the tensor's `device` there. Where it is a collective of objects, print
`torch.cuda.device_count()`.

## How to mend it

Best first: `tensor.to(local_rank)`; for objects, `torch.cuda.set_device(local_rank)` before the collective; or one
group for both devices, `init_process_group("cpu:gloo,cuda:nccl")`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroup.hpp (getBackend) and ProcessGroupNCCL.cpp; torch.distributed
documentation, "Backends".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP751", Severity.ERROR)
OBJECTS = re.compile(
    r"\b(?:broadcast_object_list|all_gather_object|gather_object|scatter_object_list|object_sizes_tensor)\b"
)
SYNCED = re.compile(r"\n\s+(?P<code>self\.log(?:_dict)?\([^\n]*\bsync_dist=True[^\n]*)|\bin _?sync_ddp\b")
BOTH = '-init_process_group("nccl")\n+init_process_group("cpu:gloo,cuda:nccl")'


@log_pattern(
    r"No backend type associated with device type cpu|Tensors must be CUDA and dense"
    r"|Could not run 'c10d::\w+' with arguments from the 'CPU' backend"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the caller; a collective of objects needs another fix than a tensor."""
    objects, synced = OBJECTS.search(record.text), SYNCED.search(record.text)
    shown: tuple[Evidence, ...] = ()
    if synced:
        what = "Lightning is asked to average a logged value over the ranks, and the value is on the CPU"
        shown = (record.proof(synced),) if synced["code"] else ()
        fix = Fix(
            "torchmetrics synchronise in compute() by themselves, so leave sync_dist out; log others from the GPU",
            diff="-self.log_dict(self.metrics.compute(), sync_dist=True)\n+self.log_dict(self.metrics.compute())\nor\n"
            "-self.log('loss', value, sync_dist=True)\n+self.log('loss', value.to(self.device), sync_dist=True)",
        )
    elif objects:
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
        what, (record.proof(match, "a CUDA tensor, or a group with a backend for the CPU"), *shown), fix, record.place
    )
