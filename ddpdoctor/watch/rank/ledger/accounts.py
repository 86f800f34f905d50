"""What the ledger keeps of one optimizer."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Clip, Exchange, Site
from ddpdoctor.watch.rank.compared.fingerprints import is_dense
from ddpdoctor.watch.rank.ledger.beside import Beside
from ddpdoctor.watch.rank.ledger.left_over import LeftOver
from ddpdoctor.watch.rank.ledger.parts import Parts
from ddpdoctor.watch.user_frames import frames

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.compared.windows import Window
    from ddpdoctor.watch.rank.model.beside.used import Outermost


MOST = 2000  # parameters of an optimizer
GROUPS = 20  # of parameters, whose options are told


@dataclass(eq=False)  # without slots: hooks hold it weakly
class Account:
    """What is known of one optimizer; ``local`` and ``added`` since its last step, where the next one is sampled."""

    number: int
    optimizer: weakref.ref[Any]
    site: Site | None
    parameters: tuple[Any, ...] = ()
    held: tuple[tuple[str, ...], tuple[int, ...]] | None = None
    sampled: bool = False
    steps: int = 0
    sent: int = 0
    stepping: bool = False
    hooks: dict[int, Any] = field(default_factory=dict)
    local: dict[int, Any] = field(default_factory=dict)
    added: dict[int, int] = field(default_factory=dict)
    given: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    state: tuple[tuple[str, int, float], ...] = ()
    used: list[Outermost] = field(default_factory=list)
    parts: Parts = field(default_factory=Parts)
    beside: Beside = field(default_factory=Beside)
    clock: int = 0
    cleared: int = 0
    pending: bool = False
    clips: list[Clip] = field(default_factory=list)
    left: LeftOver = field(default_factory=LeftOver)
    window: Window | None = None
    around: Any = None
    """The code of the user's function that steps."""

    def caller(self) -> int:
        """Return the line that the function that steps is at; 0 where it is not being executed."""
        return next((frame.f_lineno for frame in frames() if frame.f_code is self.around), 0)

    def when(self) -> str:
        """Return where in a step the training is, in words."""
        if self.stepping:
            return "in the step"
        return "after backward" if self.added else "before backward"


def summed(window: Window | None) -> tuple[Exchange, ...]:
    """Add up the communications of one line that were given the same kind of thing."""
    found: dict[Exchange, list[int]] = {}
    for each in window.seen if window else ():
        file, line = (each.site.file, each.site.line) if each.site else ("", 0)
        what = each.content()
        alike = Exchange(each.operation, each.reduction, what, each.when, 0, 0, file, line, each.caller, each.learnt)
        counts = found.setdefault(alike, [0, 0])
        counts[0] += 1
        counts[1] += each.elements
    return tuple(each._replace(calls=calls, elements=elements) for each, (calls, elements) in found.items())


def options(group: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the options of a group of parameters that are plain values: a tensor lies on a device."""
    return tuple(
        (name, repr(value))
        for name, value in sorted(group.items())
        if name != "params" and isinstance(value, (bool, int, float, str, tuple)) and not name.startswith("initial_")
    )


def constant(parameters: tuple[Any, ...]) -> list[bool]:
    """Return, for each parameter, whether all of its elements are equal."""
    import torch

    with torch.no_grad():
        flags = {at: (each == each.reshape(-1)[:1]).all() for at, each in enumerate(parameters) if is_dense(each)}
    return [bool(flags.get(at, False)) for at in range(len(parameters))]
