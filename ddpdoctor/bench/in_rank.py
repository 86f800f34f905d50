"""What each rank of a job measures of collectives, and how calls are timed on all ranks together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ddpdoctor.examine.tensors import device_of_group

if TYPE_CHECKING:
    from torch import Tensor

REPEATS = 5
MOST = 2_000  # calls in a repetition


def collectives(operations: Sequence[str], sizes: Sequence[int], seconds: float) -> list[tuple[str, int, list[float]]]:
    """Return the seconds of a call, ``REPEATS`` times, for each operation and size (bytes); each takes ``seconds``."""
    return [(name, size, _timed(_operation(name, size), seconds)) for name in operations for size in sizes]


def _operation(name: str, size: int) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    tensor = torch.ones(max(1, size // 4), device=device_of_group())
    if name == "all_reduce":
        return lambda: dist.all_reduce(tensor)
    if name == "broadcast":
        return lambda: dist.broadcast(tensor, 0)
    if name == "all_gather":
        parts = [torch.empty(max(1, size // 4 // dist.get_world_size()), device=device_of_group())]
        outputs = [torch.empty_like(parts[0]) for _ in range(dist.get_world_size())]
        return lambda: dist.all_gather(outputs, parts[0])
    return _parameter_server(tensor)


def _parameter_server(tensor: Tensor) -> Callable[[], object]:
    """Let rank 0 receive a tensor from each other rank, add it, and send the sum back."""
    import torch
    import torch.distributed as dist

    others, received = range(1, dist.get_world_size()), torch.empty_like(tensor)

    def serve() -> None:
        total = tensor.clone()
        for rank in others:
            dist.recv(received, rank)
            total += received
        for rank in others:
            dist.send(total, rank)

    def ask() -> None:
        dist.send(tensor, 0)
        dist.recv(received, 0)

    return serve if dist.get_rank() == 0 else ask


def _timed(call: Callable[[], object], seconds: float) -> list[float]:
    import torch
    import torch.distributed as dist

    call()
    once = seconds_of(call, 1)
    count = torch.tensor([min(MOST, max(1, int(seconds / REPEATS / once)))], device=device_of_group())
    dist.broadcast(count, 0)
    return [seconds_of(call, int(count)) for _ in range(REPEATS)]


def seconds_of(call: Callable[[], object], count: int) -> float:
    """Return the seconds of a call, of so many that all ranks begin together."""
    import torch.distributed as dist

    dist.barrier()
    started = time.perf_counter()
    for _ in range(count):
        call()
    _wait()
    return (time.perf_counter() - started) / count


def _wait() -> None:
    """Wait for what the GPU still does."""
    import torch
    import torch.distributed as dist

    if dist.get_backend() == "nccl":
        torch.cuda.synchronize()
