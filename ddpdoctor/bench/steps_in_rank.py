"""What a step of the user's model takes with one setting, as each rank of a job measures it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpdoctor.bench.in_rank import MOST, seconds_of
from ddpdoctor.examine.tensors import device_of_group

if TYPE_CHECKING:
    from ddpdoctor.examine.target import Target


def steps(target: Target, batch_target: Target, setting: dict[str, Any], seconds: float) -> tuple[float, int, int]:
    """Train for about so many seconds; return the seconds of a step, the bytes of all parameters, the batch size.

    ``setting`` holds the arguments of DDP; ``hook`` a communication hook, ``accumulate`` how many batches a step has,
    and ``bare`` that the model is not wrapped. ``data_parallel``: DataParallel, one process over as many GPUs as there
    are, with a batch of that many ranks, so that the seconds are those of a rank's batch under DDP.
    """
    import torch
    import torch.distributed as dist

    from ddpdoctor.examine.model.ddp import wrap
    from ddpdoctor.examine.model.rank import build_batch, build_model, plain_step
    from ddpdoctor.examine.model.step import backward, batch_size

    options = dict(setting)
    hook, accumulate, bare = options.pop("hook", None), options.pop("accumulate", 1), options.pop("bare", False)
    over_gpus = options.pop("data_parallel", False)
    model, _ = build_model(target)
    batch = build_batch(batch_target, model)
    first = plain_step(model, batch)
    if first.trouble is not None:
        raise RuntimeError(f"the model takes no step with this batch: {first.trouble}")
    if over_gpus:
        model, batch = _over_gpus(model, batch)
        first = plain_step(model, batch)
        if first.trouble is not None:
            raise RuntimeError(f"the model takes no step under DataParallel: {first.trouble}")
    wrapped = None if bare or over_gpus else wrap(model, options)
    if hook is not None and wrapped is not None:
        wrapped.register_comm_hook(None, _hook(hook))

    def step() -> None:
        for number in range(accumulate):
            if wrapped is not None and number + 1 < accumulate:
                with wrapped.no_sync():
                    backward(model, first.call, batch, wrapped)
            else:
                backward(model, first.call, batch, wrapped)

    for _ in range(3):  # DDP makes its buckets anew after the first
        step()
    once = seconds_of(step, 1)
    count = torch.tensor([min(MOST, max(2, int(seconds / once)))], device=device_of_group())  # objects need numpy
    dist.broadcast(count, 0)
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return seconds_of(step, int(count)) / accumulate, size, batch_size(batch) or 0


def _over_gpus(model: Any, batch: Any) -> tuple[Any, Any]:
    """Return the model under DataParallel on all GPUs, and a batch with a part for each of them."""
    import torch

    count = torch.cuda.device_count()

    def repeated(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.repeat(count, *[1] * (value.dim() - 1)) if value.dim() else value
        if isinstance(value, dict):
            return {name: repeated(each) for name, each in value.items()}
        return type(value)(map(repeated, value)) if isinstance(value, list | tuple) else value

    return torch.nn.DataParallel(model), repeated(batch)


def _hook(name: str) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    return getattr(default_hooks, name)
