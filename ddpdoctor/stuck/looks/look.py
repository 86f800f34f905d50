"""Looks at ranks for some seconds: what stays the same in all looks is what stands."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.stuck.looks.communication import communication
from ddpdoctor.stuck.looks.kernel import rested
from ddpdoctor.stuck.looks.spy import Stack, Stacks, stacks
from ddpdoctor.watch.monitor.seen.activity import Activity, follow
from ddpdoctor.watch.monitor.seen.usage import NEW, usages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

EACH = 1.0  # seconds from look to look
LONGER = 4  # times as long, where a look has failed and one alone says nothing, or what stands came to that just now
PART = 0.5  # of the look: whatever stands for less came to run, and will again
LEAST = 2.0  # seconds for a job all of whose ranks move


@dataclass(slots=True)
class Seen:
    """What was seen of one process, in the order of the looks; ``rested`` are the seconds since it last ran, if known.

    ``activity`` is the kernel's account of it and of what it has started, ``own`` that of itself alone; ``state`` is
    the process's latest; ``length`` are the seconds for which it was looked at.
    """

    pid: int
    rested: float | None
    began: float = 0.0
    looks: list[Stack] = field(default_factory=list)
    activity: Activity = field(default_factory=Activity)
    own: Activity = field(default_factory=Activity)
    state: str = ""
    length: float = 0.0

    @property
    def stack(self) -> Stack:
        """The latest."""
        return self.looks[-1] if self.looks else Stack()

    @property
    def moves(self) -> bool:
        """Whether it was not always at the same line with the same counters; or the threads whose end it waits for.

        One that was seen once can be anywhere by now: on a busy host most looks come too late.
        """
        if len(self.looks) == 1 or any(each != self.looks[0] for each in self.looks):
            return True
        return self.stack.joins and any(each.others != self.looks[0].others for each in self.looks)

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return self.state == psutil.STATUS_STOPPED

    @property
    def is_traced(self) -> bool:
        """Whether a debugger has kept it all the time; one that only takes a look does so for milliseconds."""
        return self.state == psutil.STATUS_TRACING_STOP and (self.rested is None or self.rested >= self.length)

    @property
    def gone(self) -> bool:
        """Whether it has ended meanwhile."""
        return self.state in {"", psutil.STATUS_ZOMBIE}

    @property
    def asks(self) -> bool:
        """Whether the main thread comes to run again and again, or came to run a moment ago."""
        return self.activity.asks or (self.rested is not None and self.rested < PART * self.length)

    def ran(self, pid: int) -> bool:
        """Whether the main thread of a process that it has started came to run, since it was last seen at work."""
        before, now = self.activity.quiet, self.activity.last
        return (
            before is not None
            and now is not None
            and now.threads.get(pid, NEW).turns > before.threads.get(pid, NEW).turns
        )

    def stood_for_less_than(self, seconds: float) -> bool:
        """Whether it stands, and came to that just now: one that sleeps, or asks, does so for most of the time."""
        communicates = bool(communication(self.stack.frames))
        return not (self.gone or self.stopped or communicates) and self.rested is not None and self.rested < seconds

    def works(self, *, alone: bool) -> bool:
        """Whether it computed, waited for a core or a disk, or moved data at any time; ``alone``: it itself."""
        account = self.own if alone else self.activity
        return (account.quiet is not None and account.quiet.time > self.began) or account.moves_data


def look(pids: Iterable[int], seconds: float) -> tuple[dict[int, Seen], Stacks]:
    """Look at processes again and again, for so many seconds; shorter where all of them move."""
    found = {pid: Seen(pid, rested(pid)) for pid in pids}
    began = time.monotonic()
    _account(found)
    for each in found.values():
        each.began = time.monotonic()
    while True:
        said = stacks(found)
        for pid, each in found.items():
            each.looks += [said.read[pid]] if pid in said.read else []
            each.state, each.rested = _state(pid), rested(pid)
        passed = time.monotonic() - began
        for each in found.values():
            each.length = passed
        again = passed < LONGER * seconds and _is_open(found.values(), LONGER * seconds)
        all_move = all(len(each.looks) > 1 and each.moves for each in found.values())
        if (passed >= seconds and not again) or (passed >= LEAST and all_move):
            return found, said
        time.sleep(min(EACH, max(0.0, seconds - passed)))
        _account(found)


def _is_open(found: Collection[Seen], longest: float) -> bool:
    """Whether more looks tell more: of one seen once, and, where nobody works, of what stands for a moment only."""
    if any(len(each.looks) == 1 for each in found):
        return True
    stand = any(each.stood_for_less_than(longest) for each in found)
    return stand and not any(each.looks and (each.moves or each.works(alone=True)) for each in found)


def _account(found: dict[int, Seen]) -> None:
    """Have the kernel's counters read: one window is over."""
    follow({pid: each.activity for pid, each in found.items()})
    for pid, usage in usages(found, helpers=False).items():
        found[pid].own.take(usage)


def _state(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return ""
