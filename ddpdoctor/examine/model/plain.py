"""Tensors that a model computes with and that are neither parameters nor buffers: DDP gives them to no other rank."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.blame import own_frames
from ddpdoctor.examine.entries import entries
from ddpdoctor.examine.model.facts import Plain
from ddpdoctor.host.stack import Frame

if TYPE_CHECKING:
    from torch.nn import Module

DEEPEST = 3  # objects within objects
TENSORS = 64
LARGEST = 4_000_000  # elements
FIRST = 3  # elements that are told
REGISTERED = {"_parameters", "_modules", "_buffers"}


def plain_tensors(model: Module) -> tuple[Plain, ...]:
    """Return what objects of the user's classes hold that a model reaches, by where it is in the model."""
    import torch

    registered = {id(each) for each in (*model.parameters(), *model.buffers())}
    looked: set[int] = set()
    found: list[Plain] = []
    for name, module in model.named_modules():
        looked.add(id(module))
        if _is_own(type(module)):
            for path, owner, value in _held(name, module, looked, 0):
                tensor = _numbers(value)
                if tensor is None or id(value) in registered or len(found) >= TENSORS:
                    continue
                with torch.no_grad():
                    found.append(_told(path, owner, tensor))
    return tuple(found)


def buffers(model: Module) -> tuple[Plain, ...]:
    """Return the buffers of the modules of the user's classes."""
    import torch

    found: list[Plain] = []
    with torch.no_grad():
        for name, module in model.named_modules():
            own = list(module._buffers.items()) if _is_own(type(module)) else []  # noqa: SLF001 - torch's own
            for attribute, value in own:
                tensor = _numbers(value)
                if tensor is not None and len(found) < TENSORS:
                    found.append(_told(f"{name}.{attribute}" if name else attribute, module, tensor))
    return tuple(found)


def _held(path: str, owner: Any, looked: set[int], depth: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield the values of an object and of the user's objects within it, each with its owner."""
    for name, value in list((getattr(owner, "__dict__", None) or {}).items()):
        where = f"{path}.{name}" if path else name
        if name in REGISTERED or type(name) is not str:
            continue
        for at, each in entries(where, value, keys=(str, int)):
            yield at, owner, each
            if depth < DEEPEST and _is_own(type(each)) and not _is_module(each) and id(each) not in looked:
                looked.add(id(each))
                yield from _held(at, each, looked, depth + 1)


def _numbers(value: Any) -> Any:
    """Return a tensor of several numbers, without a gradient; None of anything else."""
    import torch

    if type(value) is not torch.Tensor or value.requires_grad or value.is_meta or value.layout is not torch.strided:
        return None
    return value if 1 < value.numel() <= LARGEST and not value.is_complex() else None


def _told(path: str, owner: Any, tensor: Any) -> Plain:
    import torch

    flat = tensor.detach().reshape(-1).to("cpu", torch.float64)
    weights = torch.arange(1, flat.numel() + 1, dtype=torch.float64).remainder_(1009)
    kind = type(owner)
    sums = (float(flat.sum()), float((flat * weights).sum()))
    return Plain(
        path=path,
        kind=kind.__name__,
        file=str(getattr(sys.modules.get(kind.__module__), "__file__", None) or ""),
        module=_is_module(owner),
        shape=tuple(tensor.shape),
        first=tuple(flat[:FIRST].tolist()),
        sums=sums,
    )


def _is_module(value: Any) -> bool:
    import torch

    return isinstance(value, torch.nn.Module)


def _is_own(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return bool(file) and bool(own_frames((Frame(str(file), 0, ""),)))
