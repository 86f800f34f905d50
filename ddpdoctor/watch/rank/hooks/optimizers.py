"""Optimizers: when one is built, and when one steps, by the hook that torch offers for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.limits import cores
from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import Equipped, OptimizerLoaded
from ddpdoctor.watch.rank.compared.pace import Paces
from ddpdoctor.watch.rank.model.steps import Optimizers
from ddpdoctor.watch.rank.patch import Wrap, patch

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.measured.profile import Profile
    from ddpdoctor.watch.rank.recorder import Recorder


def hook(recorder: Recorder) -> list[Any]:
    """Be called before each step of any optimizer (torch's own hook for all), and when one is built."""
    import torch
    from torch.optim.optimizer import (
        Optimizer,
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    optimizers, paces = Optimizers(recorder), Paces()
    recorder.last_looks.append(lambda: optimizers.ended(paces))
    return [
        Removable(register_optimizer_step_pre_hook(_before(recorder, optimizers, paces))),
        Removable(register_optimizer_step_post_hook(_after(recorder, optimizers, paces))),
        patch(Optimizer, "add_param_group", _building(recorder, optimizers)),
        patch(Optimizer, "load_state_dict", _loading(recorder)),
        patch(Optimizer, "zero_grad", _clearing(recorder)),
        patch(torch.nn.Module, "zero_grad", _clearing(recorder)),
    ]


def _before(recorder: Recorder, optimizers: Optimizers, paces: Paces) -> Callable[..., None]:
    def before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        log = recorder.log
        if log is None or recorder.horovod.is_none(optimizer):
            return
        log.counters[event_log.STEPS] += 1
        if not recorder.models.known:  # else the forward has told
            recorder.trains.works()
        if recorder.evaluations.open:
            recorder.safely(recorder.evaluations.over)
        pace = paces.of(optimizer)
        if pace.begin(recorder.models.made):
            _look(recorder, optimizers, optimizer, pace.steps, closure=has_closure(args, kwargs))
        elif recorder.models.unsynced:
            recorder.safely(optimizers.between, optimizer, pace.steps)
        if log.counters[event_log.STOP]:
            recorder.limits.obey()
        if recorder.settings.rehearsal is not None:
            recorder.limits.steps()
        recorder.stopwatch.begins_step()

    return before_step


def _look(recorder: Recorder, optimizers: Optimizers, optimizer: Any, steps: int, *, closure: bool) -> None:
    """Look at a step that is sampled, or that comes right before one."""
    while recorder.before_first_step:
        recorder.safely(recorder.before_first_step.pop())
    if not closure:
        recorder.safely(lambda: optimizers.step(optimizer, steps, closure=False))
    recorder.safely(recorder.handles.steps, optimizer.param_groups)
    recorder.safely(recorder.ledger.before_step, optimizer, steps)
    recorder.safely(recorder.frameworks.steps, optimizer, recorder.models)
    recorder.safely(recorder.ledger.stale, optimizer)


def _after(recorder: Recorder, optimizers: Optimizers, paces: Paces) -> Callable[..., None]:
    def after_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        log = recorder.log
        if log is None or recorder.horovod.is_none(optimizer):
            return
        recorder.stopwatch.stepped(log)
        if recorder.feed.hand is not None:
            recorder.safely(recorder.feed.stepped)
        if recorder.profile is not None:
            recorder.safely(_profile, recorder, recorder.profile)
        if log.counters[event_log.STEPS] >= recorder.growing.at:
            recorder.growing.stepped(log.counters[event_log.STEPS])
        pace = paces.of(optimizer)
        if pace.near:
            recorder.safely(_tell, recorder, optimizer)
            recorder.safely(recorder.rows.stepped, pace.steps)
            closure = has_closure(args, kwargs)
            if closure:  # before the step its gradients were not there yet
                recorder.safely(lambda: optimizers.step(optimizer, pace.steps, closure=True))
            recorder.safely(lambda: recorder.ledger.after_step(optimizer, closure=closure))

    return after_step


def _tell(recorder: Recorder, optimizer: Any) -> None:
    """Record what a rank has to compute with, once."""
    import torch

    device = next((each.device.type for group in optimizer.param_groups for each in group["params"]), "")
    if device and not recorder.stopwatch.is_told:
        recorder.stopwatch.is_told = True
        recorder.emit(Equipped, device=device, threads=torch.get_num_threads(), cpus=cores())


def _profile(recorder: Recorder, profile: Profile) -> None:
    if profile.stepped():
        recorder.profile = None


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


def _building(recorder: Recorder, optimizers: Optimizers) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_param_group(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.safely(optimizers.built.add, optimizer)
            original(optimizer, *args, **kwargs)
            if recorder.is_rank:
                recorder.safely(recorder.ledger.built, optimizer)
                recorder.safely(recorder.growing.remade.built, optimizer)

        return add_param_group

    return wrap


def _loading(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(optimizer, *args, **kwargs)
            if recorder.is_rank:
                recorder.safely(_loaded, recorder, optimizer, args[0] if args else kwargs.get("state_dict"))
            return result

        return load_state_dict

    return wrap


def _loaded(recorder: Recorder, optimizer: Any, given: Any) -> None:
    path = recorder.reads.source(given)
    recorder.emit(
        OptimizerLoaded,
        optimizer=recorder.number("optimizer", optimizer),
        kind=type(optimizer).__name__,
        parameters=len(optimizer.state),
        path=path,
        progress=recorder.reads.progress(path),
    )


def _clearing(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.exchanges.windows:
                recorder.safely(_clears, recorder, owner)
            return original(owner, *args, **kwargs)

        return zero_grad

    return wrap


def _clears(recorder: Recorder, owner: Any) -> None:
    recorder.ledger.clears(owner)
    recorder.updates.clears()
