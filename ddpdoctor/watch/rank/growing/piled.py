"""What becomes more from look to look: hooks on a module, optimizers of one model."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import HooksPiledUp, OptimizerMadeAnew
from ddpdoctor.watch.user_frames import file_of, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import ProcessWithModels

MODULES = 5_000  # of a model
LOOKS, MANY = 3, 6  # looks between which hooks became more each time; hooks of one function on one module
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
OPTIMIZERS, STEPS = 10, 2  # made of the same parameters; steps of each, at most
Place = tuple[str, int, str]
"""File, line, name of a function."""


@dataclass(slots=True)
class Piled:
    """What the looks so far have found."""

    recorder: ProcessWithModels
    hooks: dict[Place, list[int]] = field(default_factory=dict)
    is_told: bool = False

    def look(self, steps: int) -> None:
        """Look at the hooks of wrapped models."""
        most: dict[Place, tuple[int, str]] = {}
        for model in self.recorder.models.alive():
            wrapper = model.wrapper()
            for name, module in islice(wrapper.module.named_modules(), MODULES) if wrapper is not None else ():
                found = Counter(place for kind in HOOKS for place in _places(getattr(module, kind, None)))
                for place, count in found.items():
                    most[place] = max(most.get(place, (0, "")), (count, name))
        for place, (count, name) in most.items():
            counts = self.hooks.setdefault(place, [])
            counts.append(count)
            grows = len(counts) >= LOOKS and counts[-LOOKS:] == sorted(set(counts[-LOOKS:]))
            if grows and count >= MANY and not self.is_told:
                self.is_told = True
                self.recorder.emit(
                    HooksPiledUp, module=name, file=place[0], line=place[1], function=place[2],
                    counts=tuple(counts[-LOOKS:]), steps=steps, site=None,
                )  # fmt: skip


@dataclass(slots=True)
class Made:
    """The optimizers of one kind that were made of one model: the steps of the process by then."""

    parameter: weakref.ref[Any]
    steps: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Remade:
    """Optimizers that a process makes, by their kind and their first parameter."""

    recorder: ProcessWithModels
    made: dict[tuple[str, int], Made] = field(default_factory=dict)
    is_told: bool = False

    def built(self, optimizer: Any) -> None:
        """Take note of a new optimizer, by its first group of parameters."""
        groups = optimizer.param_groups
        if self.is_told or len(groups) != 1 or not groups[0]["params"]:
            return
        parameter, kind = groups[0]["params"][0], type(optimizer).__name__
        known = self.made.get((kind, id(parameter)))
        if known is None or known.parameter() is not parameter:
            if len(self.made) >= MODULES:
                self.made.clear()
            known = self.made[kind, id(parameter)] = Made(weakref.ref(parameter))
        known.steps = [*known.steps, self.recorder.writer.counters[event_log.STEPS]][-OPTIMIZERS:]
        between = [after - before for before, after in zip(known.steps, known.steps[1:], strict=False)]
        if len(known.steps) == OPTIMIZERS and all(1 <= each <= STEPS for each in between):
            self.is_told = True
            self.recorder.emit(
                OptimizerMadeAnew, kind=kind, times=OPTIMIZERS, steps=sum(between), site=user_site(),
                remembers=_remembers(optimizer),
            )  # fmt: skip


def _remembers(optimizer: Any) -> bool:
    """Whether what an optimizer keeps of earlier steps is part of its next one."""
    defaults = optimizer.defaults
    return "betas" in defaults or bool(defaults.get("momentum")) or "alpha" in defaults or "rho" in defaults


def _places(hooks: Any) -> list[Place]:
    """Return where the functions of hooks are written."""
    found = []
    for each in list(hooks.values()) if hooks else ():
        function = getattr(each, "func", each)  # of a functools.partial
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        if code is not None:
            found.append((file_of(code), code.co_firstlineno, code.co_name))
    return found
