"""Calls of the user's own lines that keep a step waiting, timed while steps are measured closely, and only then."""

from __future__ import annotations

import builtins
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import CallsTimed, TimedCall
from ddpdoctor.watch.rank.compiled import has_compiled
from ddpdoctor.watch.rank.measured.callers import calling_line
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.rank.stopwatch import now
from ddpdoctor.watch.user_frames import is_watchs

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import ProcessWithModels

READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")
"""Methods of a tensor that hand its values to Python, which waits for the device then."""
WAIT = "wait"
COLLECTIVES = {
    "allreduce": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
}
"""What a script calls between steps, to report or to agree on something."""
LOGGED = "self.log(sync_dist=True)"
"""What a LightningModule logs is reduced by a barrier and an all_reduce, within the training's own functions."""
SMALL = 1024  # numbers: a metric, a decision
MOST = 200  # lines that are kept
FEWEST = 5  # steps that anything is told of
SHOWN = 12  # of them that are told


@dataclass(slots=True)
class Counted:
    """One kind of call at one line: how often, and the nanoseconds of each step that had one, by the step's number."""

    count: int = 0
    numbers: int = 0
    took: dict[int, int] = field(default_factory=dict)

    def middle(self, steps: int) -> int:
        """Return the nanoseconds of the median of so many steps."""
        values = sorted((*self.took.values(), *[0] * (steps - len(self.took))))
        return values[len(values) // 2]


@dataclass(slots=True)
class Calls:
    """The calls of one window of steps; nothing is replaced before it begins and after it ends.

    ``passed``: forwards of the wrapped models and backwards when the last step ended.
    """

    recorder: ProcessWithModels
    step: int = 0
    passed: tuple[int, int] = (0, 0)
    lines: dict[tuple[str, str, int, str], Counted] = field(default_factory=dict)
    names: dict[tuple[str, int], str] = field(default_factory=dict)
    patches: list[Patch] = field(default_factory=list)
    thread: int = 0
    inside: bool = False
    is_told: bool = False

    def begin(self) -> None:
        """Replace what is timed; where code was compiled nothing, since a compiler looks at what is called."""
        if has_compiled():
            return
        import torch
        import torch.distributed as dist

        self.thread = threading.get_ident()
        self.patches = [
            *(
                patch(torch.Tensor, name, self._timed(f"Tensor.{name}"))
                for name in READS
                if hasattr(torch.Tensor, name)
            ),
            *(
                patch(dist.ProcessGroup, method, self._timed(name))
                for method, name in COLLECTIVES.items()
                if hasattr(dist.ProcessGroup, method)
            ),
            patch(dist.Work, "wait", self._timed(WAIT)),
            patch(logging.Logger, "handle", self._timed("logging")),
            patch(builtins, "print", self._timed("print")),
        ]
        self.recorder.late += self.patches

    def stepped(self, step: int) -> None:
        """Take note of the end of a step."""
        self.step, self.passed = step, self._passed()

    def _passed(self) -> tuple[int, int]:
        return sum(each.forwards for each in self.recorder.models.alive()), self.recorder.stopwatch.backwards

    def _is_after_update(self) -> bool:
        return self._passed() == self.passed and self.passed[0] > 0

    def end(self, steps: int) -> None:
        """Put everything back, and tell what took longest, of enough steps."""
        self.forget()
        if self.is_told or steps < FEWEST:
            return
        self.is_told = True
        found = [
            TimedCall(*key, each.count, len(each.took), each.middle(steps), each.numbers)
            for key, each in self.lines.items()
        ]
        calls = tuple(sorted(found, key=lambda each: each.nanoseconds, reverse=True)[:SHOWN])
        self.recorder.emit(CallsTimed, steps=steps, calls=calls, site=None)

    def forget(self) -> None:
        """Put everything back."""
        for each in reversed(self.patches):
            each.undo()
        self.patches = []

    def _timed(self, what: str) -> Wrap:
        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def timed(*args: Any, **kwargs: Any) -> Any:
                if self.inside or threading.get_ident() != self.thread:
                    return original(*args, **kwargs)
                line, logged = calling_line(sys._getframe(1))  # noqa: SLF001 - as inspect.currentframe(), without a search
                if line is None or not self._counts(what, line, args, logged=logged):
                    return original(*args, **kwargs)
                self.inside = True
                began = now()
                try:
                    return original(*args, **kwargs)
                finally:
                    took = now() - began
                    self.inside = False
                    numbers = _numbers(args[1:2]) if what in COLLECTIVES.values() else 0
                    self._count(what, line, took, numbers, logged=logged)

            return timed

        return wrap

    def _counts(self, what: str, line: FrameType, args: tuple[Any, ...], *, logged: bool) -> bool:
        """Whether a call is one that a script makes beside its training.

        Of collectives those are small ones, and those between the update of a wrapped model and its next forward: what
        is large elsewhere is data that the training is made of. Their waits count with them.
        What the watch itself reads, of a batch that is new to it, is none of the script's.
        """
        if what.startswith("Tensor.") and is_watchs(sys._getframe(2).f_code.co_filename):  # noqa: SLF001 - as below
            return False
        if what == WAIT:
            return (line.f_code.co_filename, line.f_lineno) in self.names
        if what not in COLLECTIVES.values() and logged:
            return False
        return what not in COLLECTIVES.values() or _numbers(args[1:2]) <= SMALL or self._is_after_update()

    def _count(self, what: str, frame: FrameType, took: int, numbers: int, *, logged: bool) -> None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        begins = what != WAIT and not (logged and what == "barrier")
        if what == WAIT:
            what = self.names[file, line]
        elif what in COLLECTIVES.values():
            self.names[file, line] = what = LOGGED if logged else what
        key = what, file, line, frame.f_code.co_name
        counted = self.lines.get(key)
        if counted is None:
            if len(self.lines) >= MOST:
                return
            counted = self.lines[key] = Counted()
        counted.count += begins
        counted.numbers = max(counted.numbers, numbers)
        counted.took[self.step] = counted.took.get(self.step, 0) + took


def _numbers(given: Any) -> int:
    """Return how many numbers a collective is given."""
    if isinstance(given, (list, tuple)):
        return sum(map(_numbers, given))
    return int(given.numel()) if hasattr(given, "numel") else 0
