"""Gradients of the user's model compared: under DDP, on each rank alone, in one process, and with the whole batch."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.model.ddp import forward_twice, wrap
from ddpdoctor.examine.model.facts import Parity
from ddpdoctor.examine.model.lab import Gradients, Lab, NotComparableError, agree, everywhere, open_lab
from ddpdoctor.examine.model.rank import build_batch, build_model
from ddpdoctor.examine.model.step import batch_size, mapped, tensors
from ddpdoctor.examine.tensors import gather

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.nn import Module

    from ddpdoctor.examine.target import Target


def compare(target: Target, batch_target: Target, way: str, options: dict[str, bool]) -> Parity:
    """Compare, in a rank; every rank takes the same way through this."""
    model, _ = build_model(target, same_numbers=True)  # also where DDP does not see it: a hidden, frozen network
    batch = build_batch(batch_target, model)
    agree(model)
    overwritten = _overwritten(model, way, batch, options)
    try:
        lab, batch = open_lab(model, way, batch)
        return dataclasses.replace(_compare(lab, batch, options), overwritten=overwritten)
    except NotComparableError as exc:
        return Parity(why_not=str(exc), overwritten=overwritten)


def average_only(target: Target, batch_target: Target, way: str, options: dict[str, bool]) -> Parity:
    """Compare DDP's gradients with the mean of what each rank computes, one rank a host; nothing is pickled."""
    import torch.distributed as dist

    model, _ = build_model(target, same_numbers=True, one_a_host=True)
    batch = build_batch(batch_target, model)
    agree(model)
    try:
        lab, batch = open_lab(model, way, batch)
    except NotComparableError as exc:
        return Parity(why_not=str(exc))
    mean = {name: value.clone() for name, value in lab.gradients(batch).items()}
    if not everywhere(len(mean) == len(list(model.parameters()))):
        return Parity(why_not="not every parameter gets a gradient on all ranks")
    for value in mean.values():
        dist.all_reduce(value)
        value.div_(dist.get_world_size())
    return Parity(mode=lab.mode, averaged=lab.differences(lab.gradients(batch, wrap(lab.model, options)), mean))


def _overwritten(model: Module, way: str, batch: Any, options: dict[str, bool]) -> tuple[str, ...]:
    """Name the buffers that two forwards in a row change under what backward will need, under DDP only."""
    if not list(model.buffers()):
        return ()
    own = forward_twice(model, model, way, batch)
    return tuple(sorted(forward_twice(wrap(model, options), model, way, batch) - own))


def _compare(lab: Lab, batch: Any, options: dict[str, bool]) -> Parity:
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    mean = {name: value.clone() for name, value in lab.gradients(batch).items()}
    names = gather(sorted(mean))
    if any(other != names[0] for other in names):
        raise NotComparableError("other parameters get a gradient on other ranks")
    for name in names[0]:
        dist.all_reduce(mean[name])
        mean[name] /= world
    batches = gather(batch)
    parity = Parity(mode=lab.mode)
    if rank == 0:
        parity = _in_one_process(lab, batches, mean, parity)
    everywhere(fact=True)  # the other ranks wait here, not in DDP
    averaged = lab.differences(lab.gradients(batch, wrap(lab.model, options)), mean)
    return dataclasses.replace(parity, averaged=averaged)


def _in_one_process(lab: Lab, batches: list[Any], mean: Gradients, parity: Parity) -> Parity:
    alone = lab.differences(mean, _mean_over(lab, batches))
    whole = _together(batches)
    if whole is None:
        return dataclasses.replace(parity, alone=alone)
    try:
        differences = lab.differences(_mean_over(lab, batches, scalars=True), lab.gradients(whole, scalars=True))
        cause = _cause(lab, batches, whole) if differences else ""
    except Exception:  # noqa: BLE001 - a model that takes no other batch size has no whole batch
        return dataclasses.replace(parity, alone=alone)
    return dataclasses.replace(parity, alone=alone, whole=differences, cause=cause)


def _mean_over(lab: Lab, batches: list[Any], *, scalars: bool = False) -> Gradients:
    total: Gradients = {}
    for batch in batches:
        for name, value in lab.gradients(batch, scalars=scalars).items():
            total[name] = total[name] + value / len(batches) if name in total else value / len(batches)
    return total


def _cause(lab: Lab, batches: list[Any], whole: Any) -> str:
    """Find out by experiment why the whole batch has another gradient."""
    with _frozen_norms(lab.model) as norms:
        if norms and not lab.differences(_mean_over(lab, batches, scalars=True), lab.gradients(whole, scalars=True)):
            return "batch norm"
    times = {name: value * len(batches) for name, value in _mean_over(lab, batches, scalars=True).items()}
    return "" if lab.differences(times, lab.gradients(whole, scalars=True)) else "sum"


@contextmanager
def _frozen_norms(model: Module) -> Iterator[int]:
    from torch.nn.modules.batchnorm import _BatchNorm

    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    for module in norms:
        module.eval()
    yield len(norms)
    for module in norms:
        module.train()


def _together(batches: list[Any]) -> Any:
    """Put the ranks' batches together along the first dimension; None where that has no clear meaning."""
    import torch

    every = [list(tensors(batch)) for batch in batches]
    size = batch_size(batches[0])
    if size is None or any(len(items) != len(every[0]) for items in every):
        return None
    joined = []
    for pieces in zip(*every, strict=True):
        if any(piece.shape != pieces[0].shape for piece in pieces):
            return None
        if pieces[0].dim() and pieces[0].shape[0] == size:
            joined.append(torch.cat(pieces))
        elif all(torch.equal(piece, pieces[0]) for piece in pieces):
            joined.append(pieces[0])
        else:
            return None
    source = iter(joined)
    whole = mapped(batches[0], lambda tensor: next(source, tensor))
    return whole if next(source, None) is None else None  # else some are in an object that is no container
