"""What a rank keeps more of with each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ddpdoctor.watch.events.base import Event


class Keeper(NamedTuple):
    """A variable that holds graphs of earlier steps, of this class, by ``tensors`` of it; and where its frame was."""

    name: str
    kind: str
    file: str
    line: int
    function: str
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphsKept(Event):
    """Of ``marked`` graphs of losses, one a step, ``alive`` live on after ``steps`` steps, by these variables."""

    alive: int
    marked: int
    steps: int
    keepers: tuple[Keeper, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksPiledUp(Event):
    """A module of a wrapped model has more hooks of one function at each look, ``counts``, the last after ``steps``."""

    module: str
    file: str
    line: int
    function: str
    counts: tuple[int, ...]
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledAnew(Event):
    """torch.compile has compiled one function so many times again, for ``seconds`` of ``within``.

    ``steps`` are those by then: the look before was after half as many. ``why`` is what torch says of the last one.
    ``given_up``: torch compiles it no more, and runs it as it is; ``within`` is since the first of its versions then.
    """

    file: str
    line: int
    function: str
    times: int
    seconds: float
    within: float
    steps: int
    why: str
    given_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerMadeAnew(Event):
    """So many optimizers of one kind were made of the same parameters one after another, within ``steps`` steps.

    ``remembers``: a step of such an optimizer is made of earlier ones as well.
    """

    kind: str
    times: int
    steps: int
    remembers: bool
