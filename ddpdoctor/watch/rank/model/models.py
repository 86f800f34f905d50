"""The wrapped models of a watched process: what they were when they were wrapped, and what went through them since."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import EvaluationBegan, SyncSkipped, Wrapped
from ddpdoctor.watch.rank.compared.folded import Folded
from ddpdoctor.watch.rank.compared.gradients import norms
from ddpdoctor.watch.rank.model.shards import Shards
from ddpdoctor.watch.rank.model.wrapped_model import Model
from ddpdoctor.watch.rank.modes import is_training
from ddpdoctor.watch.rank.process import Process
from ddpdoctor.watch.user_frames import calling_package

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.compared.exchanges import Exchanges
    from ddpdoctor.watch.rank.data.given_rows import GivenRows
    from ddpdoctor.watch.rank.stopwatch import Stopwatch

NAMES = 2000  # names that an event carries: more would cost time, and nobody reads them
EVALUATIONS = 3  # that are compared
LOOKS = 300  # after a backward: a script without an optimizer would be looked at for ever


@dataclass(slots=True)
class Models:
    """All wrapped models of a process that are still there, by the identity of their wrapper.

    ``made`` counts all that there ever were, ``sent`` the elements that Python gave to collectives since the first,
    ``unsynced``: the last forward was within no_sync; ``looks`` the backwards after which gradients were looked at,
    ``folded`` what is known of a step on its way.
    """

    recorder: Process
    known: dict[int, Model] = field(default_factory=dict)
    made: int = 0
    sent: int = 0
    looks: int = 0
    unsynced: bool = False
    folded: Folded = field(default_factory=Folded)
    shards: Shards = field(default_factory=Shards)
    ignoring: dict[int, Site | None] = field(default_factory=dict)
    """Where DDP was told what to ignore of a module, by its identity."""

    def wrapped(self, wrapper: Any) -> None:
        """Record a model that was just wrapped."""
        import torch.distributed as dist

        named = list(wrapper.module.named_parameters())
        told = set(getattr(wrapper, "parameters_to_ignore", ()))
        wanted = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        trainable = {id(each): (name, str(each.device)) for name, each in wanted if name not in told}
        ignored = {id(each): name for name, each in wanted if name in told}
        self.known = {identity: model for identity, model in self.known.items() if model.wrapper() is not None}
        model = Model(self.made, weakref.ref(wrapper), frozenset(name for name, _ in named), trainable, ignored)
        self.known[id(wrapper)] = model
        self.made += 1
        self.recorder.emit(
            Wrapped,
            model=model.number,
            inner=self.recorder.number("module", wrapper.module),
            kind=type(wrapper.module).__name__,
            group=tuple(dist.get_process_group_ranks(wrapper.process_group)),
            trainable=tuple(name for name, _ in trainable.values())[:NAMES],
            elements=sum(parameter.numel() for _, parameter in named if id(parameter) in trainable),
            buffers=sum(1 for _ in wrapper.module.buffers()),
            broadcast_buffers=bool(wrapper.broadcast_buffers),
            find_unused_parameters=bool(wrapper.find_unused_parameters),
            static_graph=bool(wrapper.static_graph),
            owning_library=calling_package(),
            ignored=tuple(ignored.values())[:NAMES],
            ignored_at=self.ignoring.get(id(wrapper.module)),
        )

    def forward(self, wrapper: Any, *, with_gradients: bool) -> None:
        """Count a forward through the wrapper, if gradients are on."""
        model = self.known.get(id(wrapper))
        if model is None:
            return
        if not with_gradients:
            if not (is_training(wrapper) or wrapper.broadcast_buffers):
                self.recorder.safely(self._evaluates, model, wrapper)
            return
        model.forwards += 1
        model.last_synced = bool(wrapper.require_backward_grad_sync)
        model.synced += model.last_synced
        self.unsynced = not model.last_synced
        if not (model.last_synced or model.skipped):
            model.skipped = True
            self.recorder.safely(lambda: self.recorder.emit(SyncSkipped, model=model.number))

    def evaluates(self) -> None:
        """Take note that a pass begins which trains nothing: it may go past the wrapper."""
        for model in self.alive():
            wrapper = model.wrapper()
            if wrapper is not None and not (is_training(wrapper) or wrapper.broadcast_buffers):
                self._evaluates(model, wrapper)

    def _evaluates(self, model: Model, wrapper: Any) -> None:
        """Record the statistics that a rank evaluates with, once between two steps, the first times."""
        from torch.nn import SyncBatchNorm
        from torch.nn.modules.batchnorm import _BatchNorm

        steps = self.recorder.writer.counters[event_log.STEPS]
        if steps in model.evaluated or len(model.evaluated) >= EVALUATIONS:
            return
        model.evaluated.append(steps)
        named = [
            (f"{name}.running_var", part.running_var)
            for name, part in wrapper.module.named_modules()
            if isinstance(part, _BatchNorm) and not isinstance(part, SyncBatchNorm) and part.running_var is not None
        ][:NAMES]
        if named:
            self.recorder.emit(
                EvaluationBegan,
                model=model.number,
                steps=steps,
                names=tuple(name for name, _ in named),
                variances=tuple(norm or 0.0 for norm in norms([variance for _, variance in named])),
            )

    def alive(self) -> list[Model]:
        """List the models that are still there, the one that was wrapped last first."""
        return [model for model in reversed(self.known.values()) if model.wrapper() is not None]

    def of(self, parameter: Any) -> tuple[Model, str] | None:
        """Find the model that reduces a parameter's gradient, and the parameter's name there."""
        for model in self.alive():
            if known := model.trainable.get(id(parameter)):
                return model, known[0]
        return None

    def owners(self, parameters: Sequence[Any]) -> tuple[tuple[int, ...], dict[int, str]]:
        """Return the number of the model that reduces each parameter's gradient (-1: none), and the names there.

        The names are by the identity of the parameter, also of those that DDP was told to ignore.
        """
        found = [self.of(each) for each in parameters]
        names = {identity: name for model in self.alive() for identity, name in model.ignored.items()}
        names |= {id(each): owner[1] for each, owner in zip(parameters, found, strict=True) if owner}
        return tuple(owner[0].number if owner else -1 for owner in found), names

    def holding(self, parameters: list[Any]) -> dict[int, Model]:
        """Find the models that have some of these parameters since they were wrapped, and do not reduce them."""
        ours = set(map(id, parameters))
        return {
            model.number: model
            for model in self.alive()
            if any(True for _ in model.unmanaged(model.parameters(), ours))
        }

    def numbered(self, wrapper: Any = None) -> tuple[str, ...]:
        """Return the name of the parameters as DDP numbers them: of this model, or of the only one there is."""
        alive = self.alive()
        model = self.known.get(id(wrapper)) if wrapper is not None else alive[0] if len(alive) == 1 else None
        return tuple(name for name, _ in model.trainable.values()) if model else ()

    def changed(self, wrapper: Any) -> tuple[str, ...]:
        """Return which parameters that DDP reduces were frozen or replaced since."""
        model = self.known.get(id(wrapper))
        if model is None:
            return ()
        held = {id(parameter): parameter for parameter in model.parameters().values()}
        return tuple(
            f"{name} was {'frozen' if identity in held else 'replaced'}"
            for identity, (name, _) in model.trainable.items()
            if identity not in held or not held[identity].requires_grad
        )

    def training(self) -> bool:
        """Whether a wrapped or sharded model that is still there is in training mode."""
        wrappers = (wrapper for model in self.known.values() if (wrapper := model.wrapper()) is not None)
        return any(is_training(each) for each in (*wrappers, *self.shards.alive()))

    def any(self) -> bool:
        """Whether a model was wrapped or sharded."""
        return bool(self.known or self.shards.roots)

    def communicated(self, operation: str, tensors: Sequence[Any], elements: int, *, early: bool) -> None:
        """Count what Python gives to a collective; in the first steps, look for gradients that DDP has reduced."""
        if not self.known:
            return
        self.sent += elements
        if early and self.looks <= LOOKS and operation == "all_reduce" and tensors:
            for model in self.alive():
                model.reduces(operation, {tensor.data_ptr() for tensor in tensors})

    def backward_ended(self) -> None:
        """Keep the norms of the gradients that DDP has just averaged."""
        self.looks += 1
        for model in self.alive():
            if self.looks > LOOKS:
                model.reduced.clear()
            elif model.synced:
                named = list(model.parameters().items())[:NAMES]
                found = zip(named, norms([parameter.grad for _, parameter in named]), strict=True)
                model.reduced = {name: norm for (name, _), norm in found if norm}


class ProcessWithModels(Process, Protocol):
    """A watched process and its wrapped models."""

    models: Models
    exchanges: Exchanges
    stopwatch: Stopwatch
    rows: GivenRows

    def joined_unseen(self) -> None:
        """Record a default process group that was made where nothing is watched."""
