"""Evaluations that go through no loader: between ``model.eval()`` and the next step, the rows that the model is given.

A hook of torch's own for all modules is there while one of the first evaluations is on its way.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import EvaluatedByHand
from ddpdoctor.watch.rank.compiled import has_compiled, is_traced
from ddpdoctor.watch.rank.data.given_rows import DIGITS, row_sums
from ddpdoctor.watch.rank.model.models import ProcessWithModels
from ddpdoctor.watch.user_frames import Place, lines_of_the_users

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.ledger.ledger import Ledger
    from ddpdoctor.watch.rank.patch import Wrap

FOLLOWED = 3  # evaluations
ROWS = 512
Given = tuple[float | None, ...]


class ProcessWithLedger(ProcessWithModels, Protocol):
    """A watched process, its wrapped models and its ledger of gradients."""

    ledger: Ledger


def _nothing() -> None:
    """Stand for the weak reference to a model, where there is none."""


@dataclass(slots=True)
class ByHand:
    """The evaluation that is on its way, and how many there were; ``sums`` are checksums of the rows so far."""

    recorder: ProcessWithLedger
    model: Callable[[], Any] = _nothing
    inner: Callable[[], Any] = _nothing
    sums: list[Any] = field(default_factory=list)
    count: int = 0
    place: Place = ()
    known: bool = True
    wraps: bool = False
    """Whether the last call was that of a wrapper, which calls what it wraps."""
    number: int = 0
    follows: bool = False
    handle: Any = None
    """The hook of torch's that is set meanwhile; none where something was traced."""

    def begins(self, model: Any) -> bool:
        """Look at a model that is put into evaluation mode, if it is trained, or a copy; say whether."""
        steps = self.recorder.writer.counters[event_log.STEPS]
        if not steps or self.follows or self.number >= FOLLOWED or has_compiled() or is_traced():
            return False
        shards = self.recorder.models.shards
        if not shards.is_root(model) and not self._is_trained(list(model.parameters())):
            return False
        from torch.nn.modules.module import register_module_forward_pre_hook

        self.model, self.inner = weakref.ref(model), weakref.ref(getattr(model, "module", model))
        self.follows, self.handle = True, register_module_forward_pre_hook(self._called)
        return True

    def _is_trained(self, parameters: list[Any]) -> bool:
        """Whether an optimizer holds some of these parameters, or as many of the same sizes."""
        ledger = self.recorder.ledger
        held = ledger.trained()
        sizes = sorted(each.numel() for each in parameters)
        return any(id(each) in held for each in parameters) or any(
            sizes == sorted(each.numel() for each in account.parameters) for account in ledger.accounts.values()
        )

    def _called(self, module: Any, args: tuple[Any, ...]) -> None:
        if is_traced():
            return
        if module is self.model() or module is self.inner():
            self.recorder.safely(self._look, module, args)

    def _look(self, module: Any, args: tuple[Any, ...]) -> None:
        import torch

        is_within, self.wraps = self.wraps, module is not self.inner()
        if torch.is_grad_enabled() or module.training or (is_within and not self.wraps):
            return
        given = args[0] if args else None
        shape: Any = getattr(given, "shape", ())
        self.known = self.known and type(given) is torch.Tensor and len(shape) > 1 and all(shape)
        if not self.place:
            self.place = lines_of_the_users()
        if self.known and self.count < ROWS:
            self.sums.append(row_sums(given))
            self.count += int(shape[0])

    def quiet(self) -> None:
        """Take the hook away: what it computes would become part of what is traced."""
        self.known = False
        if self.handle is not None:
            self.handle.remove()
            self.handle = None

    def passes(self) -> None:
        """Look no further: a loader gives the rows."""
        self.known = False

    def over(
        self, sent: tuple[tuple[str, str, int, str, int], ...], given: Callable[[], Given], *, at_end: bool
    ) -> None:
        """Record it, with the numbers that were sent. This reads from the device."""
        import torch

        if not self.follows:
            return
        if self.handle is not None:
            self.handle.remove()
        self.follows, self.handle, self.model, self.inner = False, None, _nothing, _nothing
        sums, self.sums = self.sums, []
        if self.known and sums and self.place:
            self.number += 1
            rows = torch.cat([each.to(sums[0].device) for each in sums]).tolist()[:ROWS]
            self.recorder.emit(
                EvaluatedByHand,
                number=self.number,
                rows=tuple(float(f"{value:.{DIGITS}g}") for value in rows),
                sent=sent,
                at_end=at_end,
                callers=self.place,
                given=given(),
            )
        self.known, self.wraps, self.count, self.place = True, False, 0, ()


def switching(begins: Callable[[Any], None]) -> Wrap:
    """Return what stands in for ``Module.train``, which calls itself for each part of a module."""
    within: list[bool] = []

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def train(module: Any, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - as torch has it
            if within:
                return original(module, mode)
            within.append(mode)
            try:
                result = original(module, mode)
            finally:
                within.pop()
            if not mode:
                begins(module)
            return result

        return train

    return wrap
