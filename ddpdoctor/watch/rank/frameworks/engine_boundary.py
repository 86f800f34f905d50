"""DeepSpeed's engine: a step that waits for a boundary, which only the calls of step() bring nearer."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import EngineBoundaryAwaited
from ddpdoctor.watch.user_frames import calling_package

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process

GROUPS = 2  # of micro-batches, after which an engine that is stepped with each has reached a boundary twice


class Boundaries:
    """How often the script was told that its engine is at none, as long as that was never stepped."""

    def __init__(self, recorder: Process) -> None:
        """Begin with engines that nothing is known of."""
        self._recorder = recorder
        self._asked: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what looks at each answer; the engine asks as well, in each of its own calls."""

        def is_gradient_accumulation_boundary(engine: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(engine, *args, **kwargs)
            if not result and self._recorder.is_rank and not engine.micro_steps:
                self._recorder.safely(self._refused, engine)
            return result

        return is_gradient_accumulation_boundary

    def _refused(self, engine: Any) -> None:
        if calling_package():
            return
        asked = self._asked[engine] = self._asked.get(engine, 0) + 1
        every = engine.gradient_accumulation_steps()
        if asked == GROUPS * every + 1:
            self._recorder.emit(EngineBoundaryAwaited, every=every, asked=asked)
