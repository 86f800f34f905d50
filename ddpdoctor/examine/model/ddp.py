"""Steps of the user's model under DDP, as jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.model.plain import buffers
from ddpdoctor.examine.model.prepared import seed
from ddpdoctor.examine.model.rank import build_batch, build_model
from ddpdoctor.examine.model.step import CALLS, backward, loss_of, tensors

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel

    from ddpdoctor.examine.model.facts import Plain
    from ddpdoctor.examine.target import Target

STEPS = 3  # what a step left undone, DDP tells at the next one; the buckets change after the first


def wrapped_steps(target: Target, batch_target: Target, way: str, options: dict[str, bool]) -> tuple[Plain, ...]:
    """Wrap the model and take some steps; whatever DDP raises is what is asked for.

    What is returned are buffers of the user's own modules that the last step has changed.
    """
    import torch.distributed as dist

    model, _ = build_model(target)
    batch = build_batch(batch_target, model)
    wrapped = wrap(model, options)
    for step in range(STEPS):
        seed(1 + step + STEPS * dist.get_rank())
        before = buffers(model) if step == STEPS - 1 else ()
        backward(model, way, batch, wrapped)
    known = {each.path: each.numbers for each in before}
    return tuple(each for each in buffers(model) if known.get(each.path) != each.numbers)


def wrap(model: Module, options: dict[str, bool]) -> DistributedDataParallel:
    """Wrap the model as the user's file does."""
    from torch.nn.parallel import DistributedDataParallel

    arguments: dict[str, Any] = dict(options)
    return DistributedDataParallel(model, **arguments)


def forward_twice(runner: Module, model: Module, way: str, batch: Any) -> set[str]:
    """Call the runner twice; name the buffers whose values, saved by the first call for backward, have changed."""
    import torch

    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(list(tensors(CALLS[way](runner, batch))))
    homes = {buffer.untyped_storage().data_ptr(): name for name, buffer in strided_buffers(model)}
    watched = [
        (homes[home], tensor, tensor.detach().clone())
        for tensor in saved
        if tensor.layout is torch.strided and (home := tensor.untyped_storage().data_ptr()) in homes
    ]
    list(tensors(CALLS[way](runner, batch)))
    return {name for name, tensor, before in watched if not torch.equal(_filled(tensor), _filled(before))}


def strided_buffers(model: Module) -> list[tuple[str, Tensor]]:
    """Return the buffers that have a memory of their own to look at."""
    import torch

    return [item for item in model.named_buffers() if item[1].layout is torch.strided and item[1].numel()]


def _filled(tensor: Tensor) -> Tensor:
    import torch

    return torch.nan_to_num(tensor.detach()) if tensor.is_floating_point() else tensor.detach()
