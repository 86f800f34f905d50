"""Where the steps of a rank go, by the clock on the wall: two readings of it around each part, sums of a few steps."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.watch.events.steps.blocks import STEPS, Block

if TYPE_CHECKING:
    from ddpdoctor.watch.event_log import Writer
    from ddpdoctor.watch.rank.data.passes import Pass

now = time.monotonic_ns
"""One clock for all processes of a host."""


@dataclass(slots=True)
class Stopwatch:
    """Nanoseconds since the last block was written; ``began`` is when that was, 0 before the first step has ended.

    What comes before the first step has ended (the loaders' workers start, DDP makes its buckets) is in no block.
    """

    data: int = 0
    first: int = 0
    forward: int = 0
    backward: int = 0
    optimizer: int = 0
    began: int = 0
    steps: int = 0
    blocks: int = 0
    in_step: int = 0
    before_step: int = 0
    is_told: bool = False
    backwards: int = 0
    thread: int = field(default_factory=threading.get_ident)

    def waited(self, since: int, this: Pass) -> None:
        """Add what a training has waited for a batch; a thread that fetches ahead of it keeps nobody waiting."""
        if not this.trains or threading.get_ident() != self.thread:
            return
        if this.batches:
            self.data += now() - since
        else:
            self.first += now() - since

    def begins_step(self) -> None:
        """Take note of the begin of an optimizer's step."""
        self.before_step, self.in_step = self._others(), now()

    def _others(self) -> int:
        return self.data + self.first + self.forward + self.backward

    def stepped(self, log: Writer) -> None:
        """Take note of the end of an optimizer's step; write the sums after so many of them.

        What a closure that it calls has spent in a forward, a backward or a loader is counted there already.
        """
        end = now()
        self.optimizer += max(0, end - self.in_step - (self._others() - self.before_step))
        if self.began:
            self.steps += 1
            if self.steps < STEPS:
                return
            self.blocks += 1
            log.block(
                Block(self.blocks, end, end - self.began, self.data, self.first, self.forward, self.backward,
                      self.optimizer)
            )  # fmt: skip
        self.began = end
        self.steps = self.data = self.first = self.forward = self.backward = self.optimizer = 0
