"""What an optimizer holds of each wrapped model, and what of that is frozen, gone, or held by nobody."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.wrapped_model import Model


MOST = 20


@dataclass(slots=True)
class Part:
    """What an optimizer holds of one wrapped model (None: of none); the counts are the model's at the last step."""

    model: Model | None
    names: tuple[str, ...]
    parameters: tuple[Any, ...]
    forwards: int = 0
    synced: int = 0


@dataclass(slots=True)
class Held:
    """What an optimizer holds, as found when ``made`` models had been wrapped; ``others`` are of no wrapped model."""

    number: int
    optimizer: weakref.ref[Any]
    made: int
    parts: list[Part] = field(default_factory=list)
    others: tuple[Any, ...] = ()
    steps: int = 0
    told: int = 0

    def let_go(self) -> None:
        """Drop the parameters, whose memory the training wants back: the optimizer is gone."""
        self.others = ()
        for part in self.parts:
            part.parameters = ()


def without_holder(named: dict[str, Any], held: set[int]) -> tuple[str, ...]:
    """Name the parameters of a model that have a gradient and that no optimizer of this process holds."""
    return tuple(
        name
        for name, parameter in named.items()
        if parameter.requires_grad and id(parameter) not in held and parameter.grad is not None
    )


def frozen_of(parameters: tuple[Any, ...], models: list[Model]) -> tuple[str, ...]:
    """Name those of these parameters that are frozen ones of a wrapped model."""
    names = {id(parameter): name for model in models for name, parameter in model.parameters().items()}
    frozen = (names[id(each)] for each in parameters if not each.requires_grad and id(each) in names)
    return tuple(frozen)[:MOST]


def gone_from(part: Part) -> tuple[str, ...]:
    """Name what the optimizer holds of a model and the model has not any more."""
    there = set(map(id, part.model.parameters().values())) if part.model else set()
    pairs = zip(part.names, part.parameters, strict=True)
    return tuple(name for name, parameter in pairs if id(parameter) not in there)[:MOST]


def rates_of(optimizer: Any) -> tuple[float, ...]:
    """Return the learning rates that are plain numbers: one that is a tensor lies on a device."""
    rates = (group.get("lr") for group in optimizer.param_groups)
    return tuple(float(rate) for rate in rates if isinstance(rate, (int, float)))[:MOST]
