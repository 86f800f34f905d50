"""Where the thread that trains is, looked at every few milliseconds while steps are measured closely, and only then."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import LinesSampled, SampledLine
from ddpdoctor.watch.rank.stopwatch import now
from ddpdoctor.watch.user_frames import file_of, is_users

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process

EVERY = 0.002  # seconds
DEEPEST = 200  # frames
MOST = 2_000  # stacks that are kept
MAIN = 0.9  # of the time: a line that has so much is gone into, down to the loop that makes the steps
SHOWN = 12  # lines that are told
WHOLE = 2  # the generation of a collection that looks at all objects

FIRST = (
    ("/torch/utils/checkpoint.py", "", "recomputed"),
    ("/torch/autograd/", "backward", "backward"),
    ("/torch/optim/", "", "optimizer"),
    ("/torch/nn/parallel/distributed.py", "_post_forward", "graph searched"),
    ("/torch/nn/parallel/distributed.py", "forward", "forward"),
    ("/torch/utils/data/dataloader.py", "__iter__", "loader begun"),
    ("/torch/utils/data/distributed.py", "__iter__", "loader begun"),
    ("/torch/utils/data/sampler.py", "__iter__", "loader begun"),
    ("/torch/utils/data/dataloader.py", "__next__", "data"),
)
"""What a call is for that holds others: the first of these that is in the stack counts."""
LATER = (
    ("/torch/serialization.py", "save", "checkpoint written"),
    ("/copy.py", "deepcopy", "copied"),
    ("/torch/distributed/", "all_gather_object", "objects exchanged"),
    ("/torch/distributed/", "gather_object", "objects exchanged"),
    ("/torch/distributed/", "broadcast_object_list", "objects exchanged"),
    ("/torch/cuda/memory.py", "empty_cache", "cache emptied"),
    ("/torch/distributed/", "", "collective"),
    ("/logging/", "", "logging"),
    ("/torch/nn/modules/module.py", "_call_impl", "module called"),
)
"""What else a call can be; the outermost one counts."""

Line = tuple[str, int, str]
"""File, line, function."""


@dataclass(slots=True)
class Sampled:
    """The time in one stack of the user's lines: nanoseconds by the clock, of the processor, and in which steps."""

    clock: int = 0
    processor: int = 0
    steps: set[int] = field(default_factory=set)

    def add(self, other: Sampled) -> None:
        """Take up another's."""
        self.clock += other.clock
        self.processor += other.processor
        self.steps |= other.steps


@dataclass(slots=True)
class Lines:
    """Samples of one thread over a window of steps; ``cost`` are the seconds of the processor that they took."""

    recorder: Process
    step: int = 0
    cost: float = 0.0
    found: dict[tuple[str, tuple[Line, ...]], Sampled] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    of: int = 0
    waited: int = 0
    collecting: int = 0
    collected: int = 0

    def begin(self) -> None:
        """Look at the calling thread from now on, from another one."""
        self.of, self.waited = threading.get_ident(), _waited()
        self.thread = threading.Thread(target=self._look, name="ddpdoctor-lines", daemon=True)
        self.thread.start()
        gc.callbacks.append(self._collects)

    def end(self, steps: int) -> None:
        """Stop, and tell the lines that took longest."""
        self.over.set()
        if self.thread is None:
            return
        self.forget()
        self.thread.join(timeout=1)
        if self.thread.is_alive() or not self.found:
            return
        whole = Sampled()
        for each in self.found.values():
            whole.add(each)
        self.recorder.emit(
            LinesSampled,
            steps=steps,
            nanoseconds=whole.clock,
            processor=whole.processor,
            waited=max(0, _waited() - self.waited),
            sampled=by_line(self.found),
            site=None,
        )

    def _collects(self, phase: str, info: dict[str, Any]) -> None:
        """Time a whole collection: no other thread of Python can look while it lasts."""
        if info.get("generation") != WHOLE or threading.get_ident() != self.of:
            return
        if phase == "start":
            self.collecting = now()
        elif self.collecting:
            took = now() - self.collecting
            self.collecting, self.collected = 0, self.collected + took
            self._add(("garbage collected", stack_of(sys._getframe(1))[1]), Sampled(took, took, {self.step}))  # noqa: SLF001 - as below

    def _add(self, key: tuple[str, tuple[Line, ...]], sampled: Sampled) -> None:
        if key in self.found or len(self.found) < MOST:
            self.found.setdefault(key, Sampled()).add(sampled)

    def forget(self) -> None:
        """Be told of no collection any more."""
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)

    def _look(self) -> None:
        of = self.of
        clock = time.pthread_getcpuclockid(of) if hasattr(time, "pthread_getcpuclockid") else None
        before, used = now(), _processor(clock)
        while not self.over.wait(EVERY) and self.recorder.log is not None:
            frame = sys._current_frames().get(of)  # noqa: SLF001 - the documented way to other threads
            at, by_now = now(), _processor(clock)
            if frame is None:
                return
            key = stack_of(frame)
            del frame  # it holds what the user's functions hold
            elsewhere, self.collected = self.collected, 0
            took, worked = max(0, at - before - elsewhere), max(0, by_now - used - elsewhere)
            self._add(key, Sampled(took, worked, {self.step}))
            before, used = at, by_now
        self.cost = time.thread_time()


def _waited() -> int:
    """Return the nanoseconds for which this thread has waited for a core; 0 where the kernel does not count them."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/schedstat", encoding="ascii") as file:  # noqa: PTH123 - seen by no audit of the script's files
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _processor(clock: int | None) -> int:
    try:
        return time.clock_gettime_ns(clock) if clock is not None else 0
    except OSError:  # the thread has ended
        return 0


def stack_of(frame: FrameType | None) -> tuple[str, tuple[Line, ...]]:
    """Return what a thread is doing, and the user's lines that it came through, outermost first."""
    lines: list[Line] = []
    first, later = len(FIRST), len(LATER)
    for _ in range(DEEPEST):
        if frame is None:
            break
        code = frame.f_code
        if is_users(code.co_filename):
            lines.append((file_of(code), frame.f_lineno or 0, code.co_name))
        else:
            early, late = _kind(code.co_filename, code.co_name)
            first = min(first, early)
            later = min(later, late)
        frame = frame.f_back
    kind = FIRST[first][2] if first < len(FIRST) else LATER[later][2] if later < len(LATER) else ""
    return kind, tuple(reversed(lines))


@functools.cache
def _kind(file: str, function: str) -> tuple[int, int]:
    """Return the places of a library's function in the two lists; their lengths where it is not there."""
    path = file.replace("\\", "/")
    at = [
        next((at for at, (part, name, _) in enumerate(kinds) if part in path and name in {"", function}), len(kinds))
        for kinds in (FIRST, LATER)
    ]
    return at[0], at[1]


def by_line(found: dict[tuple[str, tuple[Line, ...]], Sampled]) -> tuple[SampledLine, ...]:
    """Return the lines of the loop that makes the steps, longest first, each with where it spends most."""
    depth = depth_of_loop({key: each.clock for key, each in found.items()})
    lines: dict[tuple[str, Line], Sampled] = {}
    inner: dict[tuple[str, Line], dict[Line, Sampled]] = {}
    for (kind, stack), each in found.items():
        if len(stack) <= depth:
            continue
        key = kind, stack[depth]
        lines.setdefault(key, Sampled()).add(each)
        inner.setdefault(key, {}).setdefault(stack[-1], Sampled()).add(each)
    longest = sorted(lines, key=lambda key: lines[key].clock, reverse=True)[:SHOWN]
    told = []
    for key in longest:
        kind, line = key
        deepest, most = max(inner[key].items(), key=lambda item: item[1].clock)
        each = lines[key]
        told.append(SampledLine(kind, *line, each.clock, each.processor, len(each.steps), *deepest, most.clock))
    return tuple(told)


def depth_of_loop(weights: dict[tuple[str, tuple[Line, ...]], int]) -> int:
    """Return how deep the user's function lies that makes the steps: no line of it has nearly all of the time."""
    depth, there = 0, weights
    while True:
        by: dict[Line, int] = {}
        for (_, stack), weight in there.items():
            if len(stack) > depth:
                by[stack[depth]] = by.get(stack[depth], 0) + weight
        line = max(by, key=lambda each: by[each], default=None)
        if line is None or by[line] < MAIN * sum(weights.values()):
            return depth
        inside = {key: weight for key, weight in there.items() if key[1][depth : depth + 1] == (line,)}
        deeper = sum(weight for (_, stack), weight in inside.items() if len(stack) > depth + 1)
        if deeper < MAIN * sum(weights.values()):
            return depth
        depth, there = depth + 1, inside
