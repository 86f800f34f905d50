"""What the optimizers of a watched process hold, and norms of a few of their steps, which ranks can compare."""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import ManualReduction, OptimizerSeen, SteppedWithinNoSync, StepSampled, StepsAtEnd
from ddpdoctor.watch.rank.compared.exchanges import clock
from ddpdoctor.watch.rank.compared.gradients import ByHand, median, norms
from ddpdoctor.watch.rank.compared.sampled import is_sampled
from ddpdoctor.watch.rank.model.bypass_finder import spot
from ddpdoctor.watch.rank.model.models import NAMES
from ddpdoctor.watch.rank.model.parts import MOST, Held, Part, frozen_of, gone_from, rates_of, without_holder

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.compared.pace import Paces
    from ddpdoctor.watch.rank.model.models import ProcessWithModels
    from ddpdoctor.watch.rank.model.wrapped_model import Model


@dataclass(slots=True)
class Optimizers:
    """All optimizers of a process: those that were built (weakly held), and those that have stepped."""

    recorder: ProcessWithModels
    built: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    stepped: dict[int, Held] = field(default_factory=dict)

    def step(self, optimizer: Any, steps: int, *, closure: bool) -> None:
        """Look at the optimizer's step of this number, which is about to be made, or was just made with a closure."""
        held = self.stepped.get(id(optimizer))
        if held is None or held.optimizer() is not optimizer:
            number = self.recorder.number("optimizer", optimizer)
            held = self.stepped[id(optimizer)] = Held(number, weakref.ref(optimizer), -1)
            weakref.finalize(optimizer, held.let_go).atexit = False
            self.built.add(optimizer)
        if held.made != self.recorder.models.made:
            self._look(held, optimizer)
        held.steps = steps
        if is_sampled(held.steps):
            started = time.perf_counter()
            self.recorder.models.folded.forget()
            for part in held.parts:
                self._sample(held, part, closure=closure)
            if closure:  # else the ledger looks at the same ones now
                self.recorder.models.folded.forget()
            self.recorder.writer.counters[event_log.SAMPLING_MICROSECONDS] += int((time.perf_counter() - started) * 1e6)
        else:
            self.between(optimizer, steps)
        for part in held.parts:
            if part.model is not None:
                part.forwards, part.synced = part.model.forwards, part.model.synced
                part.model.by_hand = None
                part.model.reduced.clear()

    def between(self, optimizer: Any, steps: int) -> None:
        """Take note of a step that is not sampled, if it is the first of a model right after a forward in no_sync."""
        held = self.stepped.get(id(optimizer))
        for part in held.parts if held is not None else ():
            model = part.model
            if held is not None and model is not None and not (model.last_synced or model.stepped_within):
                model.stepped_within = True
                self.recorder.emit(SteppedWithinNoSync, optimizer=held.number, model=model.number, number=steps)

    def ended(self, paces: Paces) -> None:
        """Record how many steps were made of wrapped models, once after the last step of each optimizer."""
        for key, held in self.stepped.items():
            pace = paces.known.get(key)
            steps = pace.steps if pace is not None and pace.optimizer is held.optimizer else 0
            if steps <= held.told:
                continue
            held.told = steps
            for part in held.parts:
                if part.model is not None:
                    self.recorder.emit(
                        StepsAtEnd,
                        optimizer=held.number,
                        model=part.model.number,
                        number=steps,
                        backwards=self.recorder.exchanges.backwards,
                        clock=clock(),
                    )

    def _look(self, held: Held, optimizer: Any) -> None:
        """Find out whose parameters an optimizer holds; what they are of each model is told."""
        models = self.recorder.models
        held.made = models.made
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        owners = [models.of(parameter) for parameter in parameters]
        held.others = tuple(each for each, owner in zip(parameters, owners, strict=True) if owner is None)[:NAMES]
        found = {owner[0].number: owner[0] for owner in owners if owner}
        found = found or models.holding(parameters)
        held.parts = []
        for model in found.values() or [None]:
            ours = [(owner[1], each) for each, owner in zip(parameters, owners, strict=True)
                    if owner and owner[0] is model][:NAMES]  # fmt: skip
            part = Part(model, tuple(name for name, _ in ours), tuple(each for _, each in ours))
            held.parts.append(part)
            self.recorder.emit(
                OptimizerSeen,
                optimizer=held.number,
                kind=type(optimizer).__name__,
                model=model.number if model else None,
                names=part.names,
                others=len(held.others),
                frozen=frozen_of(held.others, models.alive()),
                gone=gone_from(part),
                empty=sum(not group["params"] for group in optimizer.param_groups),
            )

    def _sample(self, held: Held, part: Part, *, closure: bool) -> None:
        model, models = part.model, self.recorder.models
        alone = models.alive()[0] if model is None and len(models.alive()) == 1 else model
        norms, held_ids = models.folded.norms, self._held()
        named = alone.parameters() if alone else {}
        gradients = norms([parameter.grad for parameter in part.parameters])
        unheld = without_holder(named, held_ids)
        unmanaged = list(model.unmanaged(named, held_ids))[:MOST] if model else []
        wanting = [parameter.grad for parameter in held.others if parameter.requires_grad]
        active = sum(bool(norm) for norm in norms(wanting))
        stray_norms = norms([stray.parameter.grad for stray in unmanaged])
        self.recorder.emit(
            StepSampled,
            optimizer=held.number,
            model=model.number if model else None,
            number=held.steps,
            gradients=tuple(gradients),
            parameters=tuple(value or 0.0 for value in norms(part.parameters)),
            forwards=model.forwards - part.forwards if model else 0,
            synced=model.synced - part.synced if model else 0,
            last_synced=model.last_synced if model else True,
            unmanaged=tuple((each.name, each.why, norm) for each, norm in zip(unmanaged, stray_norms, strict=True)),
            moved=tuple(model.moved(named))[:MOST] if model else (),
            hook=model.hook() if model else "",
            sent=models.sent,
            idle=len(wanting) - active,
            active=active,
            unheld=unheld[:MOST],
            left=len(model.reduced) if model else 0,
            rates=rates_of(held.optimizer()),
            closure=closure,
            thawed=alone.thawed(named, unheld)[:MOST] if alone else (),
        )
        if model is not None:
            if model.by_hand is not None:
                self._by_hand(model, part, model.by_hand)
            if model.forwards == part.forwards and any(gradients):
                spot(self.recorder, model)

    def _by_hand(self, model: Model, part: Part, each: ByHand) -> None:
        gradients = norms([parameter.grad for parameter in part.parameters])
        named = dict(zip(part.names, gradients, strict=True))
        ratios = [(named.get(name) or 0.0) / model.reduced[name] for name in each.names if name in model.reduced]
        self.recorder.emit(
            ManualReduction,
            model=model.number,
            operation=each.operation,
            names=tuple(each.names)[:MOST],
            count=len(each.names),
            before=each.scaled,
            after=median(ratios) or 0.0,
            site=each.site,
        )

    def _held(self) -> set[int]:
        return {id(each) for one in self.built for group in one.param_groups for each in group["params"]}
