"""Where steps go: sums of a few steps that follow each other, as a rank writes them and the monitor adds them up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

STEPS = 8  # of an optimizer, in a block
MOST = 1024  # spans of a rank that are kept


class Block(NamedTuple):
    """So many steps of a rank, in nanoseconds; ``end`` is that of its last step, by the host's monotonic clock.

    ``total`` is the time from step to step. Of that, ``data`` is waiting for batches, ``first`` for a loader that
    begins and its first batch; ``forward`` and ``backward`` are of wrapped models, in training.
    """

    number: int
    end: int
    total: int
    data: int
    first: int
    forward: int
    backward: int
    optimizer: int

    @property
    def rest(self) -> int:
        """All that is none of the others: the loss, clipping, logging, evaluation, checkpoints."""
        return max(0, self.total - self.data - self.first - self.forward - self.backward - self.optimizer)

    @property
    def own(self) -> int:
        """What the rank does without waiting: for batches, or in backward for other ranks."""
        return self.forward + self.optimizer + self.rest


PARTS = ("data", "first", "forward", "backward", "optimizer", "rest")


@dataclass(slots=True)
class Spans:
    """All blocks of a rank, added up to at most ``MOST`` spans of ``per`` blocks each."""

    per: int = 1
    spans: dict[int, Block] = field(default_factory=dict)

    def add(self, blocks: Iterable[Block]) -> None:
        """Take up blocks, in their order."""
        for block in blocks:
            self._put((block.number - 1) // self.per, block)
            if len(self.spans) > MOST:
                before, self.spans = self.spans, {}
                self.per *= 2
                for at, span in before.items():
                    self._put(at // 2, span)

    def _put(self, at: int, block: Block) -> None:
        there = self.spans.get(at)
        sums = block[2:] if there is None else [a + b for a, b in zip(there[2:], block[2:], strict=True)]
        self.spans[at] = Block(at, block.end, *sums)

    def complete(self) -> tuple[Block, ...]:
        """Return the spans, oldest first, without the last one where it may lack blocks."""
        ordered = [self.spans[at] for at in sorted(self.spans)]
        return tuple(ordered if self.per == 1 else ordered[:-1])
