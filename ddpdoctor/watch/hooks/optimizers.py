"""Optimizer steps, by the hook that torch offers for all optimizers: norms of a few steps, which ranks can compare."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddpdoctor.watch import ledger
from ddpdoctor.watch.events import OptimizerSeen, StepSampled
from ddpdoctor.watch.models import NAMES, Model
from ddpdoctor.watch.recorder import Recorder

MOST = 20


@dataclass(slots=True)
class Held:
    """What an optimizer holds of a wrapped model, found at its first step."""

    number: int
    model: Model | None
    parameters: tuple[Any, ...]
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Removable:
    """A hook of torch's own, with the name that patches have for taking it away."""

    handle: Any

    def undo(self) -> None:
        """Take the hook away."""
        self.handle.remove()


def hook(recorder: Recorder) -> list[Removable]:
    """Be called before each step of any optimizer (torch.optim.optimizer.register_optimizer_step_pre_hook)."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    held: dict[int, Held] = {}

    def before_step(optimizer: Any, _: Any, __: Any) -> None:
        if recorder.is_rank:
            recorder.safely(_before_step, recorder, held, optimizer)
            recorder.obey()
            recorder.enough_steps()

    return [Removable(register_optimizer_step_pre_hook(before_step))]


def _before_step(recorder: Recorder, held: dict[int, Held], optimizer: Any) -> None:
    recorder.count(ledger.STEPS)
    mine = held.get(id(optimizer))
    if mine is None:
        mine = held[id(optimizer)] = _seen(recorder, len(held), optimizer)
    mine.steps += 1
    if mine.model is None:
        return
    if is_sampled(mine.steps):
        started = time.perf_counter()
        _sample(recorder, mine)
        recorder.writer.counters[ledger.SAMPLING_MICROSECONDS] += int((time.perf_counter() - started) * 1e6)
    mine.model.forwards = mine.model.synced = 0


def is_sampled(step: int) -> bool:
    """Say whether a step is compared: the first three, then 10, 30, 100, 300, ... : the same on each rank."""
    text = str(step)
    return step <= 3 or (text[0] in "13" and not text[1:].strip("0"))  # noqa: PLR2004 - as said


def _seen(recorder: Recorder, number: int, optimizer: Any) -> Held:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    owners = [(parameter, recorder.models.of(parameter)) for parameter in parameters]
    models = [owner[0] for _, owner in owners if owner]
    model = max(set(map(id, models)), key=[*map(id, models)].count) if models else None
    chosen = next((each for each in models if id(each) == model), None)
    ours = [(parameter, owner[1]) for parameter, owner in owners if owner and owner[0] is chosen]
    names = {name for _, name in ours}
    recorder.held_by_optimizers.update(names)
    only = [each for each in recorder.models.known.values() if each.wrapper() is not None]
    compared = chosen or (only[0] if len(only) == 1 else None)
    trainable = [name for name, _, _ in compared.trainable.values()] if compared else []
    recorder.emit(
        OptimizerSeen,
        optimizer=number,
        kind=type(optimizer).__name__,
        model=chosen.number if chosen else None,
        names=tuple(name for _, name in ours)[:NAMES],
        foreign=len(parameters) - len(ours),
        missing=tuple(name for name in trainable if name not in recorder.held_by_optimizers)[:MOST],
        frozen=tuple(name for parameter, name in ours if not parameter.requires_grad)[:MOST],
    )
    return Held(number, chosen, tuple(parameter for parameter, _ in ours)[:NAMES])


def _sample(recorder: Recorder, held: Held) -> None:
    assert held.model is not None  # noqa: S101 - asked by the caller
    gradients = [parameter.grad for parameter in held.parameters]
    recorder.emit(
        StepSampled,
        optimizer=held.number,
        number=held.steps,
        gradients=tuple(norms(gradients)),
        parameters=tuple(value or 0.0 for value in norms(held.parameters)),
        forwards=held.model.forwards,
        synced=held.model.synced,
        changes=tuple(held.model.changes()),
    )


def norms(tensors: Sequence[Any]) -> list[float | None]:
    """Give the L2 norm of each tensor, with one transfer from the device; None for one that is missing or sparse."""
    import torch

    with torch.no_grad():
        dense = [each is not None and each.layout is torch.strided for each in tensors]
        chosen = [each.detach() for each, ok in zip(tensors, dense, strict=True) if ok]
        if not chosen:
            return [None] * len(tensors)
        found = torch._foreach_norm(chosen)  # noqa: SLF001 - what clip_grad_norm_ uses, in all versions
        values = iter(torch.stack([each.float().to(found[0].device) for each in found]).tolist())
    return [next(values) if ok else None for ok in dense]
