"""A thread of a rank that an exception has ended, while the rank waits for something of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Doing, ThreadFailed

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Stalled, Training


def ended_thread(event: Stalled, training: Training) -> tuple[Position, ThreadFailed] | None:
    """Return a rank that waits for a lock, a queue or a thread of its own, and the thread of it that is no more."""
    for each in event.doing(Doing.STANDING):
        failed = training.of(ThreadFailed, pid=each.pid)
        if failed and each.awaited is not None and each.awaited.thread:
            return each, failed[-1]
    return None
