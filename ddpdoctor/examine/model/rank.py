"""What a rank does first for an examination: build the user's model and batch, take a step with the bare model."""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.blame import own_files, own_frames
from ddpdoctor.examine.model.describe import describe, unregistered
from ddpdoctor.examine.model.facts import Description, PlainStep, Trouble
from ddpdoctor.examine.model.prepared import prepare, seed
from ddpdoctor.examine.model.step import NoLossError, backward, batch_size, mapped, tensors, ways
from ddpdoctor.examine.target import Target, build
from ddpdoctor.host.stack import Frame

if TYPE_CHECKING:
    from torch.nn import Module


class NotAModelError(Exception):
    """The factory gave something else than a torch.nn.Module; the text says what."""


def build_model(
    target: Target, *, same_numbers: bool = False, one_a_host: bool = False
) -> tuple[Module, tuple[str, ...]]:
    """Call the user's factory; return the model and the names of the wrappers that were around it.

    Raises:
        NotAModelError: it is no module.
        Exception: whatever the user's code raises.
    """
    import torch

    rank, world = prepare(same_numbers=same_numbers, one_a_host=one_a_host)
    model = build(target, rank, world)
    wrappers = []
    while True:
        if not isinstance(model, torch.nn.Module):
            raise NotAModelError(f"gave {type(model).__name__}, expected a torch.nn.Module")
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            wrappers.append(type(model).__name__)
            model = model.module
        else:
            return _where_it_runs(model), tuple(wrappers)


def _where_it_runs(model: Module) -> Module:
    """Leave the model where its factory put it, unless it cannot run there and there is a place where it can."""
    import torch

    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    synchronised = any(isinstance(module, torch.nn.SyncBatchNorm) for module in model.modules())
    return model.cuda() if synchronised and on_cpu and torch.cuda.is_available() else model


def build_batch(target: Target, model: Module) -> Any:
    """Call the user's factory; what it gives comes to where the model's parameters are.

    Raises:
        Exception: whatever the user's code raises.
    """
    import torch.distributed as dist

    seed(dist.get_rank())
    batch = build(target, dist.get_rank(), dist.get_world_size())
    device = next((parameter.device for parameter in model.parameters()), None)
    if device is None or device.type in ("cpu", "meta"):
        return batch
    return mapped(batch, lambda tensor: tensor.to(device))


def first_look(
    target: Target, batch_target: Target | None, *, one_a_host: bool = False
) -> tuple[Description, PlainStep | None]:
    """Describe the model and, with a batch, take a step."""
    before = set(sys.modules)
    model, wrappers = build_model(target, one_a_host=one_a_host)
    description = replace(describe(model, wrappers, target), files=own_files(before))
    if batch_target is None:
        return description, None
    batch = build_batch(batch_target, model)
    return description, plain_step(model, batch)


def alike(target: Target) -> Description:
    """Describe the model as ranks build it that are seeded alike."""
    model, wrappers = build_model(target, same_numbers=True)
    return describe(model, wrappers, target)


def plain_step(model: Module, batch: Any) -> PlainStep:
    """Take a step with the bare model in whichever way of passing the batch works; a failure is told, not raised."""
    normed: dict[str, tuple[int, ...]] = {}
    ungraded: set[str] = set()
    before = {name for name, _ in model.named_parameters()}
    hooks = [*_watch_norms(model, normed), _watch_grad_mode(model, ungraded)]
    trouble = None
    for way in ways(model, batch):
        try:
            outputs = backward(model, way, batch)
        except NoLossError as exc:
            trouble = trouble or Trouble("NoLossError", str(exc))
            continue
        except Exception as exc:  # noqa: BLE001 - whatever the user's model raises is what is asked for
            trouble = trouble or _trouble(exc)
            continue
        for hook in hooks:
            hook.remove()
        return PlainStep(
            call=way,
            output=", ".join(
                f"{list(output.shape)} {str(output.dtype).removeprefix('torch.')}" for output in outputs[:4]
            ),
            scalar=len(outputs) > 0 and outputs[0].dim() == 0,
            batch_size=batch_size(batch),
            unused=_without_gradient(model),
            without_grad=tuple(sorted(ungraded)),
            created=tuple(n for n, each in model.named_parameters() if each.requires_grad and n not in before),
            unregistered=unregistered(model, way, batch),
            normed=tuple(normed.items()),
        )
    return PlainStep(batch_size=batch_size(batch), normed=tuple(normed.items()), trouble=trouble)


def _without_gradient(model: Module) -> tuple[str, ...]:
    ignored = getattr(model, "_ddp_params_and_buffers_to_ignore", ())
    return tuple(
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.grad is None and name not in ignored
    )


def _watch_norms(model: Module, normed: dict[str, tuple[int, ...]]) -> list[Any]:
    """Note the shape of what goes into each batch normalisation layer that is in training mode."""
    from torch.nn.modules.batchnorm import _BatchNorm

    def watch(name: str) -> Any:
        def note(layer: Any, args: tuple[Any, ...]) -> None:
            shape = next((tuple(tensor.shape) for tensor in tensors(args)), None)
            if layer.training and shape is not None:
                normed[name] = shape

        return note

    return [
        layer.register_forward_pre_hook(watch(name))
        for name, layer in model.named_modules()
        if isinstance(layer, _BatchNorm)
    ]


def _watch_grad_mode(model: Module, ungraded: set[str]) -> Any:
    """Note the name of each layer without sublayers that is called while torch records no graph."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook

    names = {id(layer): name for name, layer in model.named_modules() if not list(layer.children())}

    def note(layer: Any, _: tuple[Any, ...]) -> None:
        if not torch.is_grad_enabled() and id(layer) in names:
            ungraded.add(names[id(layer)])

    return register_module_forward_pre_hook(note)


def _trouble(exc: Exception) -> Trouble:
    frames = tuple(Frame(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(exc.__traceback__))
    return Trouble(type(exc).__name__, str(exc), own_frames(frames)[::-1])
