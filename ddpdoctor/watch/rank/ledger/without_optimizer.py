"""A training without an optimizer of torch's: the weights when a backward begins, and what became of gradients."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from ddpdoctor.watch.rank.model.parameter_names import modules_in_sight, names_of

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import ProcessWithModels

MOST = 2000


@dataclass(slots=True)
class Updates:
    """The updates of a script's own that are compared: from one backward to the next, where both are sampled.

    ``local`` are folds of the gradients that the backward has left, ``given`` of what they were before parameters were
    sent, they were cleared, or the next backward began.
    """

    recorder: ProcessWithModels
    parameters: tuple[Any, ...] = ()
    window: Window | None = None
    local: list[Any] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)

    def backward_begins(self) -> None:
        """Tell the weights, where no optimizer was built so far, and this backward is one that is compared."""
        number = self.recorder.exchanges.backwards
        if not is_sampled(number) or self.recorder.writer.counters[event_log.STEPS] or is_captured():
            self.forget()
            return
        started = time.perf_counter()
        if self.local:
            self.clears()
        found: dict[int, Any] = {}
        for module in modules_in_sight().values():
            found |= {id(each): each for each in module.parameters() if each.requires_grad and is_dense(each)}
        parameters = tuple(found.values())[:MOST]
        same = list(map(id, parameters)) == list(map(id, self.parameters))
        if parameters:
            self._tell(number, parameters, compared=same)
        self.forget()
        if parameters and is_sampled(number + 1) and not self.recorder.models.any():
            self.parameters = parameters
            self.window = Window(parameters, self._when, lambda: 0, list)
            self.recorder.exchanges.windows.append(self.window)
        self.recorder.writer.counters[event_log.SAMPLING_MICROSECONDS] += int((time.perf_counter() - started) * 1e6)

    def backward_ended(self) -> None:
        """Keep what a backward has left."""
        if self.window is not None and not is_captured():
            self.local = self._folds()

    def clears(self) -> None:
        """Keep what gradients are before they are cleared."""
        if self.window is not None and self.local and not self.given:
            self.given = self._folds()

    def sends(self) -> None:
        """Keep what gradients are when parameters are about to be sent, as those are that were updated."""
        if self.window is not None and self.window.seen and self.window.seen[-1].what == "parameter":
            self.clears()

    def forget(self) -> None:
        """Let go of all that was kept."""
        if self.window in self.recorder.exchanges.windows:
            self.recorder.exchanges.windows.remove(self.window)
        self.window, self.parameters = None, ()
        self.local, self.given = [], []

    def _when(self) -> str:
        return "after backward" if self.local else "before backward"

    def _folds(self) -> list[Any]:
        gradients = (each.grad for each in self.parameters)
        return [fold(each) if each is not None and is_dense(each) else None for each in gradients]

    def _tell(self, number: int, parameters: Sequence[Any], *, compared: bool) -> None:
        recorder, count = self.recorder, len(parameters)
        managed, known = recorder.models.owners(parameters)
        told = compared and len(self.local) == len(self.given) == count
        prints = read([*map(fold, parameters), *(self.local + self.given if told else ())])
        recorder.joined_unseen()
        recorder.emit(
            WeightsFingerprinted,
            number=number,
            names=names_of(parameters, known),
            sizes=tuple(each.numel() for each in parameters),
            managed=managed,
            values=tuple(prints[:count]),
            sent=tuple((operation, *counts) for operation, counts in recorder.exchanges.sent.items()),
            forwards=sum(each.forwards for each in recorder.models.alive()),
            hooks=any(each.hook_sites() for each in recorder.models.alive()),
            subgroups=has_subgroups(),
            clock=clock(),
            local=tuple(prints[count : 2 * count]),
            given=tuple(prints[2 * count :]),
            exchanges=summed(self.window) if told else (),
            terms=tuple(tuple(each.told() for each in loss) for loss in self.window.terms)
            if told and self.window
            else (),
        )
