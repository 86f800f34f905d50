"""What torch.distributed has in every build with it, and lacks in builds without."""

from __future__ import annotations

# Since torch 1.0. A build without has is_available() alone; newer ones have a stand-in for ProcessGroup beside it.
NAMES = frozenset(
    {
        *("init_process_group", "destroy_process_group", "is_initialized", "is_nccl_available", "new_group"),
        *("get_rank", "get_world_size", "get_backend", "ReduceOp", "ProcessGroup", "barrier", "broadcast"),
        *("all_reduce", "all_gather", "reduce", "gather", "scatter", "send", "recv", "isend", "irecv"),
    },
)
EXTENSION = "torch._C._distributed_c10d"


def is_missing_with(module: str, name: str) -> bool:
    """Whether this name of a module of torch is there in every build that has torch.distributed."""
    return module == "torch.distributed" and name in NAMES
