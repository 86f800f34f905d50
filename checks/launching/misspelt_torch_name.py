"""The script misspells a name of torch.distributed, torch.nn or torch.nn.parallel.

## What happens

"module 'torch.nn' has no attribute 'SyncBatchnorm'": names of torch are case-sensitive, and classes are written in one
word with capitals (SyncBatchNorm, DistributedDataParallel), functions with underscores (all_reduce, get_rank).

## How to be sure

The name is asked for by the user's own file, torch has none like it, and it has one that is spelt almost alike. Where
an installed package asks, its version does not fit torch's: framework-torch-version-skew.

## How to mend it

Write the name as torch does.

## Versions and sources

The names are those that torch 2.2 to 2.13 all have. Source: torch.distributed and torch.nn documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, closest, log_pattern

AILMENT = Ailment("DDP465", Severity.ERROR)
NAMES = {
    "torch.distributed": (
        "ReduceOp", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
        "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
        "gather_object", "get_backend", "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group",
        "irecv", "is_initialized", "is_torchelastic_launched", "isend", "monitored_barrier", "new_group", "recv",
        "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
    ),
    "torch.nn": (
        "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "DataParallel", "GroupNorm", "LayerNorm", "SyncBatchNorm",
    ),
    "torch.nn.parallel": ("DataParallel", "DistributedDataParallel", "data_parallel", "parallel_apply", "replicate"),
}  # fmt: skip


@log_pattern(r"AttributeError: module '(torch\.(?:distributed|nn|nn\.parallel))' has no attribute '(\w+)'")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find the name that was meant."""
    module, wrong = match[1], match[2]
    right = closest(wrong, NAMES[module])
    if not right or (record.frames and not record.frames[-1].is_users):
        return
    yield Finding(
        f"{module} has no {wrong}: it is {right}",
        (record.proof(match, f"{module}.{right}"),),
        Fix("write the name as torch does", diff=f"-{module}.{wrong}\n+{module}.{right}"),
        record.place,
    )
