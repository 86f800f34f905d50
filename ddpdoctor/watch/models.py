"""The wrapped models of a watched process: what they were when they were wrapped, and what went through them since."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from ddpdoctor.watch import ledger
from ddpdoctor.watch.events import Wrapped

NAMES = 2000  # names that an event carries: more would cost time, and nobody reads them
CHANGES = 5


@dataclass(slots=True)
class Model:
    """A model that DistributedDataParallel holds, and the counts since the last step of an optimizer.

    ``trainable`` maps the identity of each parameter that DDP reduces to its name, shape and device at that time.
    """

    number: int
    wrapper: weakref.ref[Any]
    names: frozenset[str]
    trainable: dict[int, tuple[str, tuple[int, ...], str]]
    forwards: int = 0
    synced: int = 0

    def changes(self) -> list[str]:
        """Tell what differs from the time of wrapping, so that DDP does not average it."""
        wrapper = self.wrapper()
        if wrapper is None:
            return []
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
        found = []
        now = dict(wrapper.module.named_parameters())
        for name, parameter in now.items():
            if name in ignored or not parameter.requires_grad:
                continue
            known = self.trainable.get(id(parameter))
            if known is None:
                found.append(f"{name} {'was unfrozen' if name in self.names else 'is new'} since")
            elif known[2] != str(parameter.device):
                found.append(f"{name} was moved from {known[2]} to {parameter.device} since")
        held = {id(parameter): parameter for parameter in now.values()}
        for identity, (name, _, _) in self.trainable.items():
            if identity not in held:
                found.append(f"{name} was replaced or removed since")
        return found[:CHANGES]

    def whose_gradients(self, addresses: set[int]) -> tuple[str, ...]:
        """Name the parameters whose gradients lie at these addresses."""
        wrapper = self.wrapper()
        if wrapper is None:
            return ()
        return tuple(
            name
            for name, parameter in wrapper.module.named_parameters()
            if parameter.grad is not None and parameter.grad.data_ptr() in addresses
        )


@dataclass(slots=True)
class Models:
    """All wrapped models of a process, by the identity of their wrapper."""

    recorder: Any
    known: dict[int, Model] = field(default_factory=dict)

    def wrapped(self, wrapper: Any) -> None:
        """Record a model that was just wrapped."""
        import torch.distributed as dist

        named = list(wrapper.module.named_parameters())
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
        trainable = {
            id(parameter): (name, tuple(parameter.shape), str(parameter.device))
            for name, parameter in named
            if parameter.requires_grad and name not in ignored
        }
        number = len(self.known)
        model = Model(number, weakref.ref(wrapper), frozenset(name for name, _ in named), trainable)
        self.known[id(wrapper)] = model
        group = wrapper.process_group
        self.recorder.emit(
            Wrapped,
            model=number,
            inner=id(wrapper.module),
            kind=type(wrapper.module).__name__,
            group=tuple(dist.get_process_group_ranks(group)),
            trainable=tuple(name for name, _, _ in trainable.values())[:NAMES],
            buffers=sum(1 for _ in wrapper.module.buffers()),
            broadcast_buffers=bool(wrapper.broadcast_buffers),
            find_unused_parameters=bool(wrapper.find_unused_parameters),
            static_graph=bool(wrapper.static_graph),
        )

    def forward(self, wrapper: Any) -> None:
        """Count a forward through the wrapper, if gradients are on."""
        import torch

        self.recorder.count(ledger.FORWARDS)
        model = self.known.get(id(wrapper))
        if model is not None and torch.is_grad_enabled():
            model.forwards += 1
            model.synced += bool(wrapper.require_backward_grad_sync)

    def of(self, parameter: Any) -> tuple[Model, str] | None:
        """Find the model that reduces a parameter's gradient, and the parameter's name there."""
        for model in self.known.values():
            if model.wrapper() is not None and (known := model.trainable.get(id(parameter))):
                return model, known[0]
        return None

    def unused(self, wrapper: Any) -> tuple[str, ...]:
        """Name the parameters of a wrapped model that have no gradient though DDP waits for one."""
        model = self.known.get(id(wrapper))
        if model is None:
            return ()
        held = {id(parameter): parameter for parameter in wrapper.module.parameters()}
        return tuple(
            name for identity, (name, _, _) in model.trainable.items()
            if identity in held and held[identity].grad is None
        )  # fmt: skip

    def training(self) -> bool:
        """Say whether a wrapped model that is still there is in training mode."""
        return any(wrapper.training for model in self.known.values() if (wrapper := model.wrapper()) is not None)
