"""What functions return of an evaluation in which the ranks have put something together.

From such a communication on, until the function returns that has asked for it, Python tells each call and return
(``sys.setprofile``): of the first evaluations, for some thousand calls, and where nobody else listens.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import EvaluationReturned
from ddpdoctor.watch.rank.compiled import is_traced
from ddpdoctor.watch.user_frames import frames, is_users, site_of

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process

TOGETHER = {"all_reduce", "all_gather", "all_gather_into_tensor"}
TO_ONE = {"reduce", "gather", "scatter", "send", "recv"}
"""Operations after which ranks have different things, as is meant."""
CALLERS = 3  # functions
TIMES = 3  # that what a function returns is told
CALLS = 100_000  # calls and returns that are looked at in all
MOST = 1000  # elements of a tensor
LEAVES = 16
DEEPEST = 3
SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(slots=True)
class Returns:
    """The functions whose results are waited for, and how often each was told."""

    recorder: Process
    waited: list[CodeType] = field(default_factory=list)
    told: dict[CodeType, int] = field(default_factory=dict)
    left: int = CALLS
    listener: Any = None

    def communicated(self, operation: str) -> None:
        """Wait for what the functions return that have led to a communication."""
        if operation not in TOGETHER | TO_ONE or self.left <= 0:
            return
        users = [each.f_code for each in frames() if is_users(each.f_code.co_filename)][:CALLERS]
        functions = [each for each in users if each.co_flags & inspect.CO_OPTIMIZED and not each.co_flags & SUSPENDED]
        if operation in TO_ONE:
            self.told.update(dict.fromkeys(functions, TIMES))
            return
        new = [each for each in functions if self.told.get(each, 0) < TIMES and each not in self.waited]
        if new and self._may_listen():
            self.waited += new
            self.listener = self._hears
            sys.setprofile(self.listener)

    def _may_listen(self) -> bool:
        heard = sys.getprofile()
        alone = heard is None or heard is self.listener
        return alone and threading.current_thread() is threading.main_thread() and not is_traced()

    def over(self) -> None:
        """Wait no more: the training goes on."""
        self.waited.clear()
        if self.listener is not None and sys.getprofile() is self.listener:
            sys.setprofile(None)
        self.listener = None

    def _hears(self, frame: FrameType, event: str, given: Any) -> None:
        self.left -= 1
        if event == "return" and frame.f_code in self.waited:
            self.waited.remove(frame.f_code)
            self.recorder.safely(self._tell, frame, given)
        if not self.waited or self.left <= 0:
            self.over()

    def _tell(self, frame: FrameType, given: Any) -> None:
        number = self.told[frame.f_code] = self.told.get(frame.f_code, 0) + 1
        values = tuple(_numbers(given, "", 0))[:LEAVES]
        if values and number <= TIMES:
            self.recorder.emit(EvaluationReturned, number=number, values=values, site=site_of(frame))


def _numbers(value: Any, path: str, depth: int) -> Iterator[tuple[str, float]]:
    """Yield the numbers with a fraction in a value, by where they are; whole ones count what a rank has had."""
    if isinstance(value, float):
        yield path, float(value)
    elif hasattr(value, "is_floating_point") and hasattr(value, "layout"):
        yield from _of_tensor(value, path)
    elif depth < DEEPEST and isinstance(value, Mapping):
        for key, each in list(value.items())[:LEAVES]:
            yield from _numbers(each, f"{path}[{key!r}]", depth + 1)
    elif depth < DEEPEST and isinstance(value, (list, tuple)):
        for at, each in enumerate(value[:LEAVES]):
            yield from _numbers(each, f"{path}[{at}]", depth + 1)


def _of_tensor(tensor: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield a projection of a small tensor of the CPU: to read any other is to wait for it."""
    import torch

    plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
    if plain and tensor.is_floating_point() and 0 < tensor.numel() <= MOST and not tensor.requires_grad:
        flat = tensor.double().flatten()
        yield path, float(flat @ torch.arange(1.0, len(flat) + 1, dtype=torch.float64))
