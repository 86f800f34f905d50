"""DeepSpeed's engine: what the script does past it, or once more than it does itself."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import DEEPSPEED
from ddpdoctor.watch.events import (
    EngineClipped,
    EngineNotStepped,
    EngineSteppedSeldom,
    LossDivided,
    SavesInto,
    ScheduleSteppedTwice,
)
from ddpdoctor.watch.rank.frameworks.before import before
from ddpdoctor.watch.rank.frameworks.engine_boundary import Boundaries
from ddpdoctor.watch.rank.graph.constants import divisor
from ddpdoctor.watch.user_frames import calling_package

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.process import Process

ENGINE = "deepspeed.runtime.engine.DeepSpeedEngine"
SURE = 2  # calls of step(), or steps of a schedule, that show the same
FIRST = 8  # steps of an engine in which a backward past it is looked for
BACKWARDS = 4  # without a step of the engine


@dataclass(slots=True)
class Account:
    """What one engine was called for; ``moved`` is where its schedule stood after its last step, None before."""

    backwards: int = 0
    steps: int = 0
    began: int = 0
    moved: int | None = None
    twice: int = 0


@dataclass(slots=True)
class Engines:
    """What was told, and the accounts of the engines."""

    recorder: Process
    told: set[str] = field(default_factory=set)
    accounts: weakref.WeakKeyDictionary[Any, Account] = field(default_factory=weakref.WeakKeyDictionary)
    saved: int = 0

    def hooks(self) -> list[tuple[str, Wrap]]:
        """Return what is to be hooked, by its full name."""
        return [
            (f"{ENGINE}.backward", before(self.recorder, self._backward)),
            (f"{ENGINE}.step", self._around_step),
            (f"{ENGINE}.save_checkpoint", before(self.recorder, self._saves)),
            (f"{ENGINE}.is_gradient_accumulation_boundary", Boundaries(self.recorder).around),
        ]

    def forget(self) -> None:
        """Begin anew in a child that was forked."""
        self.told.clear()
        self.accounts.clear()
        self.saved = 0

    def stage(self) -> int:
        """Return the highest stage of ZeRO that an engine of this process has."""
        return max((each.zero_optimization_stage() for each in self.accounts), default=0)

    @property
    def are_asked(self) -> bool:
        """Whether an engine of this process has made its first steps, and no backward."""
        return bool(self.accounts) and any(
            0 < each.steps <= FIRST and not each.backwards for each in self.accounts.values()
        )

    def bypassed(self) -> int:
        """Return the steps of accumulation of an engine that steps, and whose backward is never called; 0 without."""
        passed = (each for each, account in self.accounts.items() if account.steps and not account.backwards)
        return max((each.gradient_accumulation_steps() for each in passed), default=0)

    def optimizer_steps(self, optimizer: Any) -> None:
        """Look whether the script steps what is the engine's to step, and the engine is never told to."""
        if not self.accounts or "step" in self.told or calling_package():
            return
        for engine, account in self.accounts.items():
            is_its = optimizer in (getattr(engine, "basic_optimizer", None), getattr(engine, "optimizer", None))
            if is_its and account.steps == 0 and account.backwards >= BACKWARDS:
                self._tell(
                    "step",
                    EngineNotStepped,
                    optimizer=type(optimizer).__name__,
                    backwards=account.backwards,
                    stage=engine.zero_optimization_stage(),
                )

    def clipped(self, parameters: list[Any]) -> None:
        """Look whether the script clips gradients that the engine has taken from the parameters already."""
        stage = self.stage() if self.accounts and "clip" not in self.told else 0
        if not stage or calling_package() or any(each.grad is not None for each in parameters):
            return
        engine = next((each for each in self.accounts if each.zero_optimization_stage()), None)
        ours = {id(each) for each in engine.module.parameters()} if engine is not None else set()
        if parameters and ours >= {id(each) for each in parameters} and self.accounts[engine].backwards:
            self._tell("clip", EngineClipped, parameters=len(parameters), stage=stage)

    def _around_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(engine: Any, *args: Any, **kwargs: Any) -> Any:
            if self.recorder.is_rank:
                self.recorder.safely(self._schedule, engine)
            result = original(engine, *args, **kwargs)
            if self.recorder.is_rank:
                self.recorder.safely(self._stepped, engine)
            return result

        return step

    def _account(self, engine: Any) -> Account:
        if engine not in self.accounts:
            self.accounts[engine] = Account(began=engine.global_steps)
        return self.accounts[engine]

    def _backward(self, engine: Any, loss: Any, *_: Any, scale_wrt_gas: bool = True, **__: Any) -> None:
        account = self._account(engine)
        account.backwards += 1
        every = engine.gradient_accumulation_steps()
        if every > 1 and scale_wrt_gas and "loss" not in self.told and divisor(loss) == every and not calling_package():
            self._tell("loss", LossDivided, framework=DEEPSPEED.name, steps=every)

    def _stepped(self, engine: Any) -> None:
        """Count the step, and look how many of them it takes to change the model."""
        account, schedule = self._account(engine), getattr(engine, "lr_scheduler", None)
        account.steps += 1
        account.moved = _stands(schedule)
        every = engine.gradient_accumulation_steps()
        updates = engine.global_steps - account.began
        is_seldom = account.backwards == account.steps * every and updates == account.steps // every
        if every > 1 and account.steps >= SURE and is_seldom and "seldom" not in self.told:
            self._tell(
                "seldom",
                EngineSteppedSeldom,
                every=every,
                backwards=account.backwards,
                steps=account.steps,
                updates=updates,
            )

    def _schedule(self, engine: Any) -> None:
        """Look whether the schedule has moved since the engine stepped it."""
        account, schedule = self._account(engine), getattr(engine, "lr_scheduler", None)
        now = _stands(schedule)
        if "schedule" in self.told or account.moved is None or now is None:
            return
        account.twice = account.twice + 1 if now == account.moved + 1 else 0
        if account.twice >= SURE:
            self._tell("schedule", ScheduleSteppedTwice, kind=type(schedule).__name__, times=account.twice)

    def _saves(self, _: Any, save_dir: Any, tag: Any = None, *__: Any, **___: Any) -> None:
        folder = os.path.realpath(os.fspath(save_dir))
        named = "" if tag is None else str(tag)
        self.recorder.emit(SavesInto, framework=DEEPSPEED.name, number=self.saved, folder=folder, tag=named)
        self.saved += 1

    def _tell(self, subject: str, event: Any, **values: Any) -> None:
        self.told.add(subject)
        self.recorder.emit(event, **values)


def _stands(schedule: Any) -> int | None:
    """Return how many steps a schedule of torch's or DeepSpeed's has made."""
    for name in ("last_epoch", "last_batch_iteration"):
        if isinstance(found := getattr(schedule, name, None), int):
            return found
    return None
