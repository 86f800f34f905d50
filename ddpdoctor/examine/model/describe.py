"""What the user's model is made of, told by the rank that built it."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.model.facts import Buffer, Description, Entry, Layer, Parameter
from ddpdoctor.examine.model.plain import plain_tensors
from ddpdoctor.examine.model.step import CALLS, loss_of, tensors
from ddpdoctor.examine.target import MAIN, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.nn import Module

WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def describe(model: Module, wrappers: tuple[str, ...], target: Target) -> Description:
    """Return what the model is made of."""
    from torch.nn.modules.batchnorm import _BatchNorm

    module = sys.modules.get(MAIN if target.is_file else target.module)
    ignored = set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))
    return Description(
        kind=type(model).__name__,
        wrappers=wrappers,
        parameters=tuple(_parameter(*item) for item in model.named_parameters() if item[0] not in ignored),
        buffers=tuple(_buffer(*item) for item in model.named_buffers() if item[0] not in ignored),
        shared=_shared(model),
        state=tuple(_entries(model)),
        norms=_layers(model, lambda layer: isinstance(layer, _BatchNorm)),
        inner=_layers(model, lambda layer: type(layer).__name__ in WRAPPERS),
        attributes=_attributes(model),
        ignored=tuple(sorted(ignored)),
        source=getattr(module, "__file__", None),
        plain=plain_tensors(model),
    )


def _layers(model: Module, wanted: Any) -> tuple[Layer, ...]:
    return tuple(Layer(name, type(layer).__name__) for name, layer in model.named_modules() if wanted(layer))


def _is_lazy(tensor: Any) -> bool:
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _parameter(name: str, tensor: Any) -> Parameter:
    lazy = _is_lazy(tensor)
    shape, stride = ((), ()) if lazy else (tuple(tensor.shape), _stride(tensor))
    return Parameter(name, shape, _dtype(tensor), stride, str(tensor.device), tensor.requires_grad, lazy)


def _stride(tensor: Any) -> tuple[int, ...]:
    import torch

    return tuple(tensor.stride()) if tensor.layout is torch.strided and not _is_lazy(tensor) else ()


def _buffer(name: str, tensor: Any) -> Buffer:
    shape = () if _is_lazy(tensor) else tuple(tensor.shape)
    return Buffer(name, shape, _dtype(tensor), _stride(tensor), str(tensor.device))


def _entries(model: Module) -> Iterator[Entry]:
    import torch

    for key, value in model.state_dict().items():
        if isinstance(value, torch.Tensor):
            yield Entry(key, () if _is_lazy(value) else tuple(value.shape), _dtype(value))


def _shared(model: Module) -> tuple[tuple[str, ...], ...]:
    """Return the names of parameters that are one."""
    names: dict[int, list[str]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(tensor), []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


def _attributes(model: Module) -> tuple[str, ...]:
    """Return the public names that are lost behind a wrapper."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    offered = set(dir(DistributedDataParallel)) | set(dir(DataParallel))
    for wrapper in (DistributedDataParallel, DataParallel):
        offered |= set(re.findall(r"self\.(\w+)\b[^=\n]*=[^=]", _source(wrapper)))
    offered |= {"training", "module"}
    return tuple(sorted(name for name in dir(model) if not name.startswith("_") and name not in offered))


def _source(wrapper: type) -> str:
    """Return the source of a class at the top of its module; ``inspect.getsource`` takes 15 ms to parse the file."""
    text = Path(sys.modules[wrapper.__module__].__file__ or "").read_text(encoding="utf-8")
    found = re.search(rf"^class {wrapper.__name__}\b.*?(?=^(?:class|def|@)|\Z)", text, re.DOTALL | re.MULTILINE)
    return found[0] if found else inspect.getsource(wrapper)


def unregistered(model: Module, way: str, batch: Any) -> tuple[str, ...]:
    """Return the name of what the loss depends on, and is to be trained, and ``model.parameters()`` does not list.

    A tensor of the model's own that requires a gradient, and is no ``nn.Parameter``, is among them; an input that the
    model keeps (for a gradient penalty, a saliency map) is not.
    """
    known = {id(each) for each in (*model.parameters(), *tensors(batch))}
    names = dict(_hidden(model))
    found: dict[int, Any] = {}
    waiting: list[Any] = [loss_of(list(tensors(CALLS[way](model, batch)))).grad_fn]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            found[id(leaf)] = leaf
        waiting += [following for following, _ in node.next_functions]
    # One without a name was made in this very forward, and is gone with it.
    return tuple(sorted(f"{names[key]} {list(leaf.shape)}" for key, leaf in found.items() if key in names))


def _hidden(model: Module) -> Iterator[tuple[int, str]]:
    """Yield the name of what has a gradient in plain attributes, lists, tuples and dicts of the model's modules."""
    import torch

    for prefix, module in model.named_modules():
        for attribute, value in vars(module).items():
            path = f"{prefix + '.' if prefix else ''}{attribute}"
            if attribute in ("_modules", "_parameters", "_buffers"):
                continue
            if isinstance(value, dict):
                items = [(f"{path}[{key!r}]", item) for key, item in value.items()]
            elif isinstance(value, (list, tuple)):
                items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
            else:
                items = [(path, value)]
            for name, item in items:
                if isinstance(item, torch.Tensor) and item.is_leaf and item.requires_grad:
                    yield id(item), name
                elif isinstance(item, torch.nn.Module):
                    yield from ((id(tensor), f"{name}.{rest}") for rest, tensor in item.named_parameters())
