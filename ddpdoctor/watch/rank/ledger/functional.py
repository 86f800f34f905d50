"""A training of plain tensors: weights that gradients are asked for by torch.autograd.grad or torch.func, and those.

Between calls that are compared a call costs a look-up and an addition. The gradients are the user's: they are held
weakly, to be known again where they are sent, and nothing that was looked at outlives them.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import WeightsFingerprinted
from ddpdoctor.watch.rank.compared.exchanges import clock, is_captured
from ddpdoctor.watch.rank.compared.fingerprints import fold, is_dense, read
from ddpdoctor.watch.rank.compared.sampled import is_sampled
from ddpdoctor.watch.rank.compared.windows import Window
from ddpdoctor.watch.rank.data.described import has_subgroups
from ddpdoctor.watch.rank.ledger.accounts import summed
from ddpdoctor.watch.user_frames import frames, is_users, variables_of

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import ProcessWithModels

MOST = 2000  # tensors
DEEPEST = 4  # objects within objects, where a name is looked for
LISTED = 200  # things of one of them
LOOKED = 5000  # things
NEVER = -1  # ParametersHeld.managed of what nobody has wrapped


class Results(Window):
    """The time from one call to the next; what was computed is known as long as the user holds it."""

    __slots__ = ("results",)
    results: list[weakref.ref[Any]]

    def gradients(self) -> list[Any]:
        """Return the gradients that are still there."""
        return [each for result in self.results if (each := result()) is not None]


@dataclass(slots=True)
class Functional:
    """The calls that ask for gradients of the same tensors, of a process without steps of optimizers, and backwards.

    ``off``: gradients were asked of what is no tensor of its own, as within a training that adapts to tasks.
    """

    recorder: ProcessWithModels
    calls: int = 0
    sizes: tuple[tuple[int, ...], ...] = ()
    names: tuple[str, ...] = ()
    off: bool = False
    window: Results | None = field(default=None)

    def computed(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Take note of a call, and tell it where it is one that is compared."""
        if self.recorder.writer.counters[event_log.STEPS] or self.recorder.exchanges.backwards or is_captured():
            self._stop()
            return
        with _plainly():
            weights = [_plain(each) for each in inputs[: MOST + 1]]
            if not weights or len(weights) > MOST or not all(map(_is_weight, weights)):
                self.off = any(each is None for each in weights) or self.off
                return
            shapes = tuple(tuple(each.shape) for each in weights)
            if shapes != (self.sizes or shapes):
                return  # of another function
            self.sizes = shapes
            self.calls += 1
            if is_sampled(self.calls):
                self._compare(weights, [_plain(each) for each in results])
            else:
                self._stop()

    def _compare(self, weights: list[Any], results: list[Any]) -> None:
        started = time.perf_counter()
        self.names = self.names or _names(weights)
        self._tell(weights, results)
        self._stop()
        if is_sampled(self.calls + 1):
            self.window = Results((), lambda: "after backward", lambda: 0, list)
            self.window.results = [weakref.ref(each) for each in results if each is not None and is_dense(each)]
            self.recorder.exchanges.windows.append(self.window)
        self.recorder.writer.counters[event_log.SAMPLING_MICROSECONDS] += int((time.perf_counter() - started) * 1e6)

    def _stop(self) -> None:
        if self.window in self.recorder.exchanges.windows:
            self.recorder.exchanges.windows.remove(self.window)
        self.window = None

    def _tell(self, weights: list[Any], results: list[Any]) -> None:
        recorder, count = self.recorder, len(weights)
        folds = [fold(each) if each is not None and is_dense(each) else None for each in results]
        prints = read([*map(fold, weights), *folds])
        recorder.joined_unseen()
        recorder.emit(
            WeightsFingerprinted,
            number=self.calls,
            names=self.names,
            sizes=tuple(each.numel() for each in weights),
            managed=(NEVER,) * count,
            values=tuple(prints[:count]),
            sent=tuple((operation, *counts) for operation, counts in recorder.exchanges.sent.items()),
            forwards=0,
            hooks=False,
            subgroups=has_subgroups(),
            clock=clock(),
            returned=tuple(prints[count:]),
            exchanges=summed(self.window),
        )


def _plainly() -> AbstractContextManager[Any]:
    """Have operators compute with tensors as they are, within a transformation of torch.func, too."""
    import torch

    return getattr(torch._C, "_DisableFuncTorch", nullcontext)()  # noqa: SLF001 - as torch.func itself does


def _plain(tensor: Any) -> Any:
    """Return the tensor that torch.func has wrapped once to take its gradient; None for any other that is wrapped."""
    from torch._C import _functorch

    if not _is_tensor(tensor) or not _functorch.is_functorch_wrapped_tensor(tensor):
        return tensor
    inner = _functorch.get_unwrapped(tensor) if _functorch.is_gradtrackingtensor(tensor) else None
    return None if inner is None or _functorch.is_functorch_wrapped_tensor(inner) else inner


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_weight(tensor: Any) -> bool:
    return tensor is not None and _is_tensor(tensor) and is_dense(tensor) and tensor.is_leaf


def _names(tensors: list[Any]) -> tuple[str, ...]:
    """Name tensors by where the user's functions hold them, the innermost first."""
    wanted = {id(each) for each in tensors}
    found: dict[int, str] = {}
    looked: set[int] = set()
    for frame in frames():
        if is_users(frame.f_code.co_filename):
            for name, value in [*variables_of(frame).items()][:LISTED]:
                for path, each in _held(name, value, 0, looked):
                    if id(each) in wanted:
                        found.setdefault(id(each), path)
        if len(found) == len(wanted) or len(looked) > LOOKED:
            break
    return tuple(
        found.get(id(each), f"tensor {at} of shape {list(each.shape)}") for at, each in enumerate(tensors)
    )  # fmt: skip


def _held(path: str, value: Any, depth: int, looked: set[int]) -> Iterator[tuple[str, Any]]:
    if _is_tensor(value):
        yield path, value
        return
    if depth >= DEEPEST or id(value) in looked or len(looked) > LOOKED or isinstance(value, type):
        return
    looked.add(id(value))
    if isinstance(value, dict):
        inside = [(f"{path}[{key!r}]", each) for key, each in [*value.items()][:LISTED] if isinstance(key, (str, int))]
    elif isinstance(value, (list, tuple)):
        inside = [(f"{path}[{at}]", each) for at, each in enumerate(value[:LISTED])]
    else:
        attributes = getattr(value, "__dict__", None)
        found = [*attributes.items()][:LISTED] if isinstance(attributes, dict) else []
        inside = [(f"{path}.{name}", each) for name, each in found]
    for name, each in inside:
        yield from _held(name, each, depth + 1, looked)
