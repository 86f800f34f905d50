"""Optimizers: when one is built, when one steps (by the hook that torch offers for all), and the end of backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.rank.model.steps import Optimizers
from ddpdoctor.watch.rank.patch import patch

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder


def hook(recorder: Recorder) -> list[Any]:
    """Be called before each step of any optimizer (torch's own hook for all), when one is built, after a backward."""
    import torch
    from torch.optim.optimizer import (
        Optimizer,
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    optimizers = Optimizers(recorder)

    def before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if recorder.is_rank:
            recorder.count(event_log.STEPS)
            recorder.safely(recorder.frameworks.steps, optimizer, recorder.models)
            if not has_closure(args, kwargs):
                recorder.safely(lambda: optimizers.step(optimizer, closure=False))
            recorder.safely(recorder.ledger.before_step, optimizer)
            recorder.safely(recorder.ledger.stale, optimizer)
            recorder.obey()
            recorder.enough_steps()

    def after_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if recorder.is_rank:
            closure = has_closure(args, kwargs)
            if closure:  # before the step its gradients were not there yet
                recorder.safely(lambda: optimizers.step(optimizer, closure=True))
            recorder.safely(lambda: recorder.ledger.after_step(optimizer, closure=closure))

    return [
        Removable(register_optimizer_step_pre_hook(before_step)),
        Removable(register_optimizer_step_post_hook(after_step)),
        patch(Optimizer, "add_param_group", _building(recorder, optimizers)),
        patch(torch.autograd, "backward", _backward(recorder)),
    ]


def has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a step was given a function that computes the gradients; the first argument is the optimizer."""
    return (len(args) > 1 and callable(args[1])) or (bool(kwargs) and callable(kwargs.get("closure")))


@dataclass(frozen=True, slots=True)
class Removable:
    """A hook of torch's own, with the name that patches have for taking it away."""

    handle: Any

    def undo(self) -> None:
        """Take the hook away."""
        self.handle.remove()


def _building(recorder: Recorder, optimizers: Optimizers) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_param_group(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.safely(optimizers.built.add, optimizer)
            original(optimizer, *args, **kwargs)
            if recorder.is_rank:
                recorder.safely(recorder.ledger.built, optimizer)

        return add_param_group

    return wrap


def _backward(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank and recorder.early:
                recorder.safely(recorder.frameworks.backward, recorder.models)
            recorder.exchanges.in_backward = True
            try:
                result = original(*args, **kwargs)
            finally:
                recorder.exchanges.in_backward = False
            if recorder.is_rank and recorder.early:
                recorder.safely(recorder.models.backward_ended)
            return result

        return backward

    return wrap
