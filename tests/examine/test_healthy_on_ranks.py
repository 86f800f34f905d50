"""Healthy trainings as tests marked for our own plugin: each on two ranks, under the watch with all its checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

pytestmark = pytest.mark.ranks(2)


def net(*more: nn.Module) -> nn.Module:
    """Return a small network, with other weights on each rank."""
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.manual_seed(dist.get_rank())
    return nn.Sequential(nn.Linear(8, 16), *more, nn.ReLU(), nn.Linear(16, 4))


def ddp(model: Any, **options: bool) -> Any:
    """Wrap a model."""
    from torch.nn import parallel

    return parallel.DistributedDataParallel(model, **options)  # type: ignore[arg-type]  # flags


def loss_of(call: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the loss of a batch of the rank's own."""
    import torch

    loss: Tensor = (call(torch.randn(8, 8)) - torch.randn(8, 4)).square().mean()
    return loss


def fit(model: Callable[[Tensor], Tensor], *optimizers: Optimizer, steps: int = 5) -> None:
    """Make some steps."""
    for _ in range(steps):
        for each in optimizers:
            each.zero_grad()
        loss_of(model).backward()  # type: ignore[no-untyped-call]  # torch's own
        for each in optimizers:
            each.step()


def sgd(*models: nn.Module) -> Optimizer:
    """Return one optimizer for these models."""
    import torch

    return torch.optim.SGD([each for model in models for each in model.parameters()], lr=0.05)


def test_accumulation_by_the_flag_of_ddp() -> None:
    """Every other backward is averaged, and followed by a step."""
    model = ddp(net())
    optimizer = sgd(model)
    for index in range(20):
        model.require_backward_grad_sync = bool(index % 2)
        loss_of(model).backward()  # type: ignore[no-untyped-call]  # torch's own
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()


def test_two_optimizers_for_the_parts_of_one_model() -> None:
    """Each holds half of the parameters, and both step."""
    import torch

    model = ddp(inner := net())
    parts = [[*each.parameters()] for each in inner.children() if [*each.parameters()]]
    fit(model, torch.optim.SGD(parts[0], lr=0.1), torch.optim.AdamW(parts[1], lr=1e-3), steps=12)


def test_one_optimizer_for_two_wrapped_models() -> None:
    """An encoder and a head, each wrapped for itself."""
    from torch import nn

    encoder, head = ddp(nn.Linear(8, 8)), ddp(nn.Linear(8, 4))
    fit(lambda inputs: head(encoder(inputs)), sgd(encoder, head))


@pytest.mark.parametrize("inside", [True, False])
def test_a_compiled_model(inside: bool) -> None:  # noqa: FBT001 - a parameter of pytest's
    """It is compiled before it is wrapped, or afterwards."""
    import torch

    if inside:
        model = ddp(torch.compile(net(), backend="eager"))
        fit(model, sgd(model))
    else:
        model = ddp(net())
        fit(torch.compile(model, backend="eager"), sgd(model))


def test_activation_checkpointing_with_a_static_graph() -> None:
    """The forward is computed again within backward."""
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, inputs: Tensor) -> Tensor:
            output: Tensor = checkpoint(self.inner, inputs, use_reentrant=False)
            return output

    model = ddp(Checkpointed(), static_graph=True)
    fit(model, sgd(model))


def test_parameters_that_are_not_used_on_one_rank_and_searched_for() -> None:
    """DDP was told that they can be left out."""
    import torch.distributed as dist
    from torch import nn

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = net(), net()

        def forward(self, inputs: Tensor) -> Tensor:
            output: Tensor = self.first(inputs)
            return output if dist.get_rank() == 0 else output + self.second(inputs)

    model = ddp(Branches(), find_unused_parameters=True)
    fit(model, sgd(model))


def test_batch_normalisation_evaluated_on_all_ranks() -> None:
    """Training, an evaluation through the wrapper, and training again."""
    import torch
    from torch import nn

    model = ddp(net(nn.BatchNorm1d(16)))
    optimizer = sgd(model)
    for _ in range(2):
        fit(model, optimizer, steps=4)
        model.eval()
        with torch.no_grad():
            model(torch.randn(8, 8))
        model.train()


def test_buffers_that_ddp_does_not_broadcast_averaged_before_the_evaluation() -> None:
    """The script averages them itself."""
    import torch
    import torch.distributed as dist
    from torch import nn

    model = ddp(net(nn.BatchNorm1d(16)), broadcast_buffers=False)
    optimizer = sgd(model)
    for _ in range(2):
        fit(model, optimizer, steps=4)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer.div_(dist.get_world_size())
        model.eval()
        with torch.no_grad():
            model(torch.randn(8, 8))
        model.train()
