"""Graphs of losses that live on after their step, and which variable of the script keeps them.

A mark is an object in the ``metadata`` of one node, which torch has for such notes: it goes when the node goes. No hook
is set and no tensor is held.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import GraphsKept, Keeper
from ddpdoctor.watch.rank.compiled import is_traced
from ddpdoctor.watch.rank.growing.held import held_by
from ddpdoctor.watch.user_frames import file_of, frames, is_users

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process

FIRST, MARKED = 20, 12  # steps of optimizers: before the first that is marked; that are marked, at most one graph each
ALL = 10  # marks: so many have to be alive together
NODES, MOST = 3_000, 50_000  # of a graph: of one step; of many, where they are known to live on
KEY = "ddpdoctor"


class Mark:
    """Lives as long as the node that has it."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True)
class Graphs:
    """The marks of a process; ``wants`` is whether the next backward is to have one."""

    recorder: Process
    wants: bool = False
    before: int = -1
    marks: list[weakref.ref[Mark]] = field(default_factory=list)
    is_over: bool = False

    def stepped(self, steps: int) -> None:
        """Take note of a step of any optimizer; once enough graphs were marked, see which are alive."""
        if self.is_over or steps < FIRST:
            return
        if steps <= FIRST + MARKED:
            self.wants = len(self.marks) < MARKED
            return
        self.is_over, self.wants = True, False
        if len(self._alive()) >= ALL:
            self._tell(steps)
        self.marks.clear()

    def mark(self, given: Any) -> None:
        """Mark the node of a loss's graph that was made first, since the loss before."""
        self.wants = False
        loss = given if hasattr(given, "grad_fn") else next(iter(given), None)
        node = getattr(loss, "grad_fn", None)
        if node is None or is_traced():
            return
        newest = node._sequence_nr()  # noqa: SLF001 - torch's own number of a node, in the order of their making
        if self.before >= 0:
            first = min(_nodes(node, self.before, NODES), key=lambda each: each._sequence_nr(), default=None)  # noqa: SLF001 - as above
            if first is not None:
                mark = Mark()
                first.metadata[KEY] = mark
                self.marks.append(weakref.ref(mark))
        self.before = newest

    def _alive(self) -> set[int]:
        return {id(mark) for each in self.marks if (mark := each()) is not None}

    def _tell(self, steps: int) -> None:
        alive, keepers = self._alive(), []
        for frame in list(frames()):
            if not is_users(frame.f_code.co_filename):
                continue
            for name, kind, count in held_by(frame, lambda tensor: _marks(tensor, alive), ALL):
                keepers.append(Keeper(name, kind, file_of(frame.f_code), frame.f_lineno, frame.f_code.co_name, count))
        if keepers:
            self.recorder.emit(
                GraphsKept, alive=len(alive), marked=len(self.marks), steps=steps, keepers=tuple(keepers)
            )


def _nodes(first: Any, before: int, most: int) -> Iterator[Any]:
    waiting, seen = deque([first]), {first}
    while waiting and len(seen) <= most:
        node = waiting.popleft()
        yield node
        for each, _ in node.next_functions:
            if each is None or each in seen or each.name() == "torch::autograd::AccumulateGrad":
                continue
            if each._sequence_nr() > before:  # noqa: SLF001 - as above
                seen.add(each)
                waiting.append(each)


def _marks(tensor: Any, alive: set[int]) -> set[int]:
    """Return which of these marks the graph of a tensor has."""
    found = (id(each.metadata.get(KEY)) for each in _nodes(tensor.grad_fn, -1, MOST))
    return {each for each in found if each in alive}
