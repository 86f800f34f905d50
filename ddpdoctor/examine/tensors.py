"""The bytes of a tensor, without numpy: torch does not need it, and so neither do we."""

from __future__ import annotations

import ctypes
import json
import pickle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def raw(tensor: Tensor) -> bytes:
    """Return a tensor's elements in row-major order, as they lie in memory; sparse ones are made dense first."""
    plain = tensor.detach().cpu()
    if plain.layout is not _strided():
        plain = plain.to_dense()
    plain = plain.resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size()) if plain.numel() else b""


def _strided() -> object:
    import torch

    return torch.strided


def gather(value: Any) -> list[Any]:
    """Return every rank's value, in rank order: torch's all_gather_object needs numpy (seen with torch 2.13)."""
    return [pickle.loads(each) for each in gather_bytes(pickle.dumps(value))]  # noqa: S301 - this very job's ranks


def gather_plain(value: Any) -> list[Any]:
    """Return every rank's value, in rank order, of what JSON can hold: nothing that others send is unpickled."""
    return [json.loads(each) for each in gather_bytes(json.dumps(value).encode())]


def device_of_group() -> str:
    """Return where a tensor must be that the process group is given: over NCCL the GPU that the rank has chosen."""
    import torch
    import torch.distributed as dist

    return f"cuda:{torch.cuda.current_device()}" if dist.get_backend() == "nccl" else "cpu"


def gather_bytes(mine: bytes) -> list[bytes]:
    """Return what every rank gives, in rank order."""
    import torch
    import torch.distributed as dist

    device = device_of_group()
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(mine)], device=device))
    most = max(1, *(int(size) for size in sizes))
    slots = [torch.zeros(most, dtype=torch.uint8, device=device) for _ in sizes]
    dist.all_gather(slots, torch.frombuffer(bytearray(mine.ljust(most, b"\0")), dtype=torch.uint8).to(device))
    return [raw(slot)[: int(size)] for slot, size in zip(slots, sizes, strict=True)]
