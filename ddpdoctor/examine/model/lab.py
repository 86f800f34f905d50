"""The conditions under which gradients of the user's model can be compared."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.model.facts import Difference
from ddpdoctor.examine.model.prepared import drawn, seed
from ddpdoctor.examine.model.step import CALLS, backward, mapped, tensors

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

Gradients = dict[str, "Tensor"]
MODES = ("training mode", "training mode, dropout off", "evaluation mode")
RELATIVE = 0.02  # a gradient that is not averaged, or of another loss, is off by about its own size
NEGLIGIBLE = {"float64": 1e-7, "float32": 1e-4}  # of the largest gradient: rounding, next to a gradient of zero


class NotComparableError(Exception):
    """The gradients of two steps cannot be compared; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lab:
    """A model at fixed weights, and how to take its gradients so that only what is meant to differs."""

    model: Module
    way: str
    mode: str
    start: tuple[Tensor, ...]
    negligible: float

    def gradients(self, batch: Any, runner: Module | None = None, *, scalars: bool = False) -> Gradients:
        """Return the gradients of a step that begins with the same buffers and random numbers as every other."""
        import torch

        with torch.no_grad():
            for buffer, value in zip(self.model.buffers(), self.start, strict=True):
                buffer.copy_(value)
        seed(1)
        backward(self.model, self.way, batch, runner, scalars=scalars)
        return {
            name: parameter.grad.detach().to_dense().clone()
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }

    def differences(self, seen: Gradients, expected: Gradients) -> tuple[Difference, ...]:
        """Compare, in the order of the model's parameters."""
        floor = self.negligible * max((value.norm().item() for value in expected.values()), default=0.0)
        found = []
        for name in expected:
            if name not in seen:
                continue
            one, other = seen[name].norm().item(), expected[name].norm().item()
            off = (seen[name] - expected[name]).norm().item()
            if off > floor + RELATIVE * max(one, other):
                found.append(Difference(name, one, other, off / max(one, other)))
        return tuple(found)


def open_lab(model: Module, way: str, batch: Any) -> tuple[Lab, Any]:
    """Find the strictest conditions under which a repeated step gives the same gradients; gives the batch for them.

    Raises:
        NotComparableError: there are none.
    """
    if operators := _collectives(model, way, batch):
        raise NotComparableError(f"the forward itself talks to other ranks ({operators[0]}): one process has no answer")
    precision, batch = _precise(model, way, batch)
    for mode in MODES:
        _set_mode(model, mode)
        agree(model)
        lab = Lab(model, way, mode, tuple(buffer.detach().clone() for buffer in model.buffers()), NEGLIGIBLE[precision])
        first = lab.gradients(batch)
        after = drawn()
        repeated = lab.gradients(batch)
        seed(1)
        if everywhere(after == drawn() and not lab.differences(first, repeated)):
            return lab, batch
    raise NotComparableError("the model draws random numbers, or keeps a state, that cannot be switched off")


def agree(model: Module) -> None:
    """Broadcast the weights and buffers of rank 0 to every rank, as DDP does."""
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            value = tensor.detach().contiguous()
            if value.numel():
                dist.broadcast(value, src=0)
                tensor.copy_(value)


def everywhere(fact: bool) -> bool:  # noqa: FBT001 - it is the one thing that is asked
    """Whether it holds on every rank."""
    import torch
    import torch.distributed as dist

    flag = torch.tensor(int(fact))
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag)


def _set_mode(model: Module, mode: str) -> None:
    if mode == MODES[1]:
        for module in model.modules():
            if "drop" in type(module).__name__.lower():
                module.eval()
    elif mode == MODES[2]:
        model.eval()


def _precise(model: Module, way: str, batch: Any) -> tuple[str, Any]:
    """Go to double precision if the model can."""
    import torch

    double = mapped(batch, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    original = {tensor.dtype for tensor in model.parameters()}
    works = True
    try:
        backward(model.double(), way, double)
    except Exception:  # noqa: BLE001 - a model that insists on its own precision is compared in that
        works = False
    if everywhere(works):
        return "float64", double
    if original != {torch.float32}:
        raise NotComparableError("the model works in half or mixed precision only: too coarse to compare gradients")
    model.float()
    return "float32", batch


def _collectives(model: Module, way: str, batch: Any) -> list[str]:
    """Return the name of the collective operators that a forward runs."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[str] = []

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            if func.namespace in ("c10d", "_c10d_functional"):
                found.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():  # type: ignore[no-untyped-call]  # as above
        list(tensors(CALLS[way](model, batch)))
    return found
