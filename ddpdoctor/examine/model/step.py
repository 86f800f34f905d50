"""One training step of a model that nobody told us how to train: pass the batch, make a loss, walk the outputs."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

DEPTH = 6  # of nested outputs; deeper ones are caches and configurations
LONGEST = 1000  # items taken from a generator
SEED = 20_011
Call = Callable[["Module", Any], Any]


class NoLossError(Exception):
    """No output of the model has a gradient."""


CALLS: dict[str, Call] = {
    "model(**batch)": lambda model, batch: model(**batch),
    "model(*batch)": lambda model, batch: model(*batch),
    "model(batch[0])": lambda model, batch: model(batch[0]),
    "model(batch)": lambda model, batch: model(batch),
}


def ways(model: Module, batch: Any) -> list[str]:
    """Return the name of the ways in which people would pass this batch to this model, likeliest first."""
    if isinstance(batch, Mapping):
        offers: list[tuple[str, tuple[Any, ...], Mapping[str, Any]]] = [("model(**batch)", (), batch)]
    elif isinstance(batch, (tuple, list)) and batch:
        offers = [("model(*batch)", tuple(batch), {}), ("model(batch[0])", (batch[0],), {})]
    else:
        offers = []
    offers.append(("model(batch)", (batch,), {}))
    return [way for way, args, kwargs in offers if _takes(model, args, kwargs)] or [way for way, _, _ in offers]


def _takes(model: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # no signature, as a scripted module has none
        return True
    return True


def tensors(value: Any, depth: int = DEPTH) -> Iterator[Tensor]:
    """Walk the tensors in what a model takes or gives."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
        return
    if depth == 0 or value is None or isinstance(value, (str, bytes, int, float, complex, torch.nn.Module)):
        return
    if isinstance(value, Mapping):
        items: Any = value.values()
    elif isinstance(value, (tuple, list)):
        items = value
    elif inspect.isgenerator(value):
        items = itertools.islice(value, LONGEST)
    elif dataclasses.is_dataclass(value):
        items = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        items = getattr(value, "__dict__", {}).values()
    for item in items:
        yield from tensors(item, depth - 1)


def mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Rebuild a batch with each of its tensors replaced; what is not a plain container stays as it is."""
    import torch

    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: mapped(item, function) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(mapped(item, function) for item in value)
    return value


def batch_size(batch: Any) -> int | None:
    """Return the first dimension of the first tensor that has one."""
    return next((int(tensor.shape[0]) for tensor in tensors(batch) if tensor.dim()), None)


def loss_of(outputs: list[Tensor]) -> Tensor:
    """Make one number of all outputs that have a gradient, such that it is a mean over the first dimension.

    A scalar counts as it is. Any other tensor goes through a fixed smooth function with other constants for each
    place in a sample: a plain sum or mean of what batch or layer normalisation or softmax gives has no gradient.

    Raises:
        NoLossError: no output has a gradient.
    """
    import torch

    total: Tensor | None = None
    generator = torch.Generator().manual_seed(SEED)
    for output in outputs:
        if not output.requires_grad or not output.numel():
            continue
        value = output.to_dense() if output.layout is not torch.strided else output
        value = torch.view_as_real(value) if value.is_complex() else value
        value = value if value.dtype is torch.float64 else value.float()
        if value.numel() > 1 or value.dim():
            place = torch.rand((2, *value.shape[1:]), generator=generator).to(value)
            value = torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)
            value = torch.sin(value.asinh() * (1 + place[0]) + 6 * place[1]).mean()
        total = value if total is None else total + value
    if total is None:
        raise NoLossError("no output of the model has a gradient")
    return total


def backward(
    model: Module, way: str, batch: Any, runner: Module | None = None, *, scalars: bool = False
) -> list[Tensor]:
    """Take one forward and backward; gives the outputs.

    ``runner`` is the wrapper to call, if there is one. With ``scalars``, a model that computes its own loss is
    taken at its word: only scalar outputs count, if there are any.

    Raises:
        NoLossError: no output has a gradient.
    """
    model.zero_grad(set_to_none=True)
    outputs = list(tensors(CALLS[way](runner if runner is not None else model, batch)))
    losses = [output for output in outputs if scalars and output.dim() == 0 and output.requires_grad]
    loss_of(losses or outputs).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return outputs
