"""The frameworks of a watched process, as far as the user's code has imported them: nothing else is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import ACCELERATE, DEEPSPEED, LIGHTNING, TRAINER, Framework, by_module
from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import (
    AccumulationUnused,
    BackwardBypassed,
    FrameworkSeen,
    LossDivided,
    ShardedTwice,
    SteppedUnsynced,
)
from ddpdoctor.watch.rank.frameworks.accelerated import Accelerated
from ddpdoctor.watch.rank.frameworks.engines import Engines
from ddpdoctor.watch.rank.frameworks.metrics import Metrics
from ddpdoctor.watch.rank.frameworks.own_backwards import (
    accumulation,
    by_accelerate,
    by_hand,
    divides_loss,
    gradient_state,
)
from ddpdoctor.watch.rank.frameworks.shares import sampled_twice, streamed_twice
from ddpdoctor.watch.rank.frameworks.stops import Stops
from ddpdoctor.watch.rank.frameworks.synced import Synced
from ddpdoctor.watch.rank.frameworks.trainers import Trainers
from ddpdoctor.watch.rank.graph.constants import divisor
from ddpdoctor.watch.rank.patch import patch
from ddpdoctor.watch.user_frames import calling_package, frames, is_users

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import Models, ProcessWithModels

ROUNDS = 2  # of accumulation, after which it is clear that none is done


@dataclass(slots=True)
class Frameworks:
    """What is known of the frameworks in use, and what was told of them; ``backwards`` are Accelerate's own."""

    recorder: ProcessWithModels
    wrapping: Framework | None = None
    told: set[str] = field(default_factory=set)
    hooked: set[str] = field(default_factory=set)
    accumulates: bool = False
    backwards: int = 0
    before: int = 0
    metrics: Metrics = field(init=False)
    accelerated: Accelerated = field(init=False)
    stops: Stops = field(init=False)
    synced: Synced = field(init=False)
    engines: Engines = field(init=False)
    trainers: Trainers = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing told."""
        self.metrics = Metrics(self.recorder)
        self.accelerated = Accelerated(self.recorder)
        self.stops = Stops(self.recorder)
        self.synced = Synced(self.recorder)
        self.engines = Engines(self.recorder)
        self.trainers = Trainers(self.recorder)

    def forget(self) -> None:
        """Begin anew in a child that was forked; what is hooked is so there as well."""
        self.wrapping, self.accumulates, self.backwards = None, False, 0
        self.told.clear()
        self.metrics.told.clear()
        self.accelerated.forget()
        self.stops.told = 0
        self.synced.told.clear()
        self.engines.forget()
        self.trainers.forget()

    def seen(self, *, wraps: bool) -> None:
        """Take note of who makes a process group, or wraps a model, right now."""
        self.hook()
        framework = above_torch()
        if framework is None:
            return
        if wraps:
            self.wrapping = framework
        asked = "FSDP" if wraps and _uses("ACCELERATE_USE_FSDP") and framework is ACCELERATE else ""
        self.recorder.emit(FrameworkSeen, framework=framework.name, wraps=wraps, asked=asked)

    def backward(self, models: Models) -> None:
        """Look whether the framework that wrapped the models is passed by."""
        owner = DEEPSPEED if self.engines.accounts else self.wrapping
        if owner is None or "backward" in self.told or _is_called_by_a_library():
            return
        found = None
        if owner is DEEPSPEED:
            found = divides_loss("engine.backward(loss)", self.engines.bypassed())
        elif owner is TRAINER:
            steps = self.trainers.bypassed()
            found = divides_loss("self.accelerator.backward(loss / self.args.gradient_accumulation_steps)", steps)
        elif owner is ACCELERATE:
            found = by_accelerate()
        elif owner is LIGHTNING:
            found = by_hand(models)
        if found:
            self.told.add("backward")
            right, left_out = found
            self.recorder.emit(BackwardBypassed, framework=owner.name, right=right, left_out=left_out)

    def steps(self, optimizer: Any, models: Models) -> None:
        """Look whether an optimizer steps while Accelerate keeps the gradients apart."""
        self.engines.optimizer_steps(optimizer)
        state = gradient_state()
        if state is None or state.get("sync_gradients", True) or "step" in self.told or self.wrapping is not ACCELERATE:
            return
        held = (parameter for group in optimizer.param_groups for parameter in group["params"])
        if any(models.of(parameter) is not None for parameter in held):
            self.told.add("step")
            self.recorder.emit(SteppedUnsynced, steps=accumulation(state))

    def iterates(self, loader: Any) -> None:
        """Look whether a loader that Accelerate shares out had been shared out before."""
        found = None if "shards" in self.told else sampled_twice(loader) or streamed_twice(loader)
        if found is not None:
            self.told.add("shards")
            self.recorder.emit(ShardedTwice, sampler=found.sampler, shards=found.shards, ranks=found.ranks)

    def hook(self) -> None:
        """Hook into what is there by now, once each."""
        accelerator = "accelerate.accelerator.Accelerator"
        for name, wrap in (
            (f"{accelerator}.backward", self._backward),
            (f"{accelerator}._do_sync", self._accumulating),
            (f"{accelerator}.no_sync", self._accumulating),
            *self.metrics.hooks(),
            *self.accelerated.hooks(),
            *self.stops.hooks(),
            *self.synced.hooks(),
            *self.engines.hooks(),
            *self.trainers.hooks(),
        ):
            path, _, method = name.rpartition(".")
            module, _, kind = path.rpartition(".")
            owner = getattr(sys.modules.get(module), kind, None)
            if name not in self.hooked and owner is not None and hasattr(owner, method):
                self.hooked.add(name)
                self.recorder.late.append(patch(owner, method, wrap))

    def _accumulating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def accumulating(*args: Any, **kwargs: Any) -> Any:
            self.accumulates = True
            return original(*args, **kwargs)

        return accumulating

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(accelerator: Any, *args: Any, **kwargs: Any) -> Any:
            if self.recorder.is_rank and not self.accumulates and "accumulation" not in self.told:
                self.recorder.safely(self._counted)
            if self.recorder.is_rank and args and "divided" not in self.told:
                self.recorder.safely(self._divides, args[0])
            if self.recorder.is_rank and args and self.trainers.items is not None:
                self.recorder.safely(self.trainers.learns, args[0])
            return original(accelerator, *args, **kwargs)

        return backward

    def _divides(self, loss: Any) -> None:
        """Look whether a loss comes divided by the steps of accumulation, by which Accelerate divides it."""
        steps = accumulation(gradient_state() or {})
        if steps > 1 and divisor(loss) == steps and not calling_package():
            self.told.add("divided")
            self.recorder.emit(LossDivided, framework=ACCELERATE.name, steps=steps)

    def _counted(self) -> None:
        """Count the backwards, and the steps that they led to."""
        state = gradient_state()
        steps = accumulation(state) if state is not None else 1
        if self.wrapping is not ACCELERATE or steps < 2:  # noqa: PLR2004 - one is none
            self.told.add("accumulation")
            return
        made = self.recorder.writer.counters[event_log.STEPS]
        if not self.backwards:
            self.before = made
        elif made - self.before < self.backwards:
            self.told.add("accumulation")  # the script accumulates by itself
        elif self.backwards >= ROUNDS * steps:
            self.told.add("accumulation")
            self.recorder.emit(AccumulationUnused, steps=steps, backwards=self.backwards)
        self.backwards += 1


def above_torch() -> Framework | None:
    """Return the framework that the user's code has called, of those whose code is being executed; None without one."""
    found = None
    for frame in frames():
        if is_users(frame.f_code.co_filename):
            break
        found = by_module(str(frame.f_globals.get("__name__", ""))) or found
    return found


def _is_called_by_a_library() -> bool:
    """Whether the caller of backward() is no code of the user's: a framework, or autograd itself."""
    for frame in frames():
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
        if is_users(file):
            return False
        if not module.startswith(("torch.", "ddpdoctor.")):
            return True
        if module == "torch.utils.checkpoint":
            return True
    return True


def _uses(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in {"true", "1", "yes"}
