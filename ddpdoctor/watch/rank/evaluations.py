"""Passes over loaders that evaluate, and what the process sends to others until it trains again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Evaluated
from ddpdoctor.watch.rank.model.exchanges import reduction
from ddpdoctor.watch.rank.model.gradients import tensors_in

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.data.passes import Pass
    from ddpdoctor.watch.rank.process import Process

OPEN = 8  # passes that are followed at a time
PASSES = 3  # of a loader, that are told
SENT = 16  # communications after a pass that are told
NOTHING_SAID = {"barrier", "monitored_barrier"}


@dataclass(slots=True, eq=False)
class Evaluation:
    """One pass, and what was sent since it began: operation, reduction, elements, file and line."""

    passed: Pass
    sent: list[tuple[str, str, int, str, int]] = field(default_factory=list)


@dataclass(slots=True)
class Evaluations:
    """The evaluations that no training has followed yet."""

    recorder: Process
    open: list[Evaluation] = field(default_factory=list)

    def began(self, this: Pass) -> None:
        """Follow a pass that was begun where nothing trains."""
        if len(self.open) < OPEN and this.number < PASSES:
            self.open.append(Evaluation(this))

    def communicated(self, operation: str, args: Sequence[Any], site: Site | None) -> None:
        """Take note of a communication of the user's."""
        if operation in NOTHING_SAID or site is None:
            return
        elements = sum(each.numel() for each in tensors_in(args[0])) if args else 0
        for each in self.open:
            if len(each.sent) < SENT:
                each.sent.append((operation, reduction(tuple(args)), elements, site.file, site.line))

    def over(self, *, at_end: bool = False) -> None:
        """Record them: training goes on, or nothing comes any more."""
        closed, self.open = self.open, []
        for each in closed:
            this = each.passed
            if not this.forwards and this.batches:
                self.recorder.emit(
                    Evaluated,
                    loader=this.loader,
                    number=this.number,
                    sent=tuple(each.sent),
                    complete=this.over and this.complete,
                    at_end=at_end,
                    site=this.site,
                )
