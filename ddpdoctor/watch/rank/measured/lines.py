"""Where the thread that trains is, looked at every few milliseconds while steps are measured closely, and only then."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import LinesSampled
from ddpdoctor.watch.events.steps.lines import LineKind
from ddpdoctor.watch.rank.measured.line_kinds import Line, Sampled, by_line, stack_of
from ddpdoctor.watch.rank.stopwatch import now

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process

EVERY = 0.002  # seconds
SWITCH = 0.0005  # seconds: after Python's usual 5 ms, a shorter stretch of Python would count to the line behind it
MOST = 2_000  # stacks that are kept
WHOLE = 2  # the generation of a collection that looks at all objects


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
    native: int = 0
    collecting: int = 0
    collected: int = 0
    switched: float = 0.0

    def begin(self) -> None:
        """Look at the calling thread from now on, from another one."""
        self.of, self.native = threading.get_ident(), threading.get_native_id()
        self.thread = threading.Thread(target=self._look, name="ddpdoctor-lines", daemon=True)
        if (interval := sys.getswitchinterval()) > SWITCH:
            self.switched = interval
            sys.setswitchinterval(SWITCH)
        gc.callbacks.append(self._collects)
        self.thread.start()

    def end(self, steps: int) -> None:
        """Stop, and tell the lines that took longest; once."""
        if self.over.is_set():
            return
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
            waited=whole.waited,
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
            caller = sys._getframe().f_back  # noqa: SLF001 - as below; none where the interpreter itself collects, at its end
            self._add((LineKind.GARBAGE_COLLECTED, stack_of(caller)[1]), Sampled(took, took, {self.step}))

    def _add(self, key: tuple[str, tuple[Line, ...]], sampled: Sampled) -> None:
        if key in self.found or len(self.found) < MOST:
            self.found.setdefault(key, Sampled()).add(sampled)

    def forget(self) -> None:
        """Be told of no collection any more, and let Python switch between threads as often as before."""
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)
        before, self.switched = self.switched, 0.0
        if before and abs(sys.getswitchinterval() - SWITCH) < SWITCH / 10:  # else the script has set it meanwhile
            sys.setswitchinterval(before)

    def _look(self) -> None:
        try:
            with _waits_of(self.native) as waits:
                self._look_at(waits)
        finally:
            self.forget()
        self.cost = time.thread_time()

    def _look_at(self, waits: int) -> None:
        of = self.of
        clock = time.pthread_getcpuclockid(of) if hasattr(time, "pthread_getcpuclockid") else None
        before, used, starved = now(), _processor(clock), _waited(waits)
        while not self.over.wait(EVERY) and self.recorder.log is not None:
            frame = sys._current_frames().get(of)  # noqa: SLF001 - the documented way to other threads
            at, by_now, without = now(), _processor(clock), _waited(waits)
            if frame is None:
                return
            if self.collecting:  # it has just ended, and is yet to be told: what has passed counts with the next look
                del frame
                continue
            key = stack_of(frame)
            del frame  # it holds what the user's functions hold
            elsewhere, self.collected = self.collected, 0
            took, worked = max(0, at - before - elsewhere), max(0, by_now - used - elsewhere)
            self._add(key, Sampled(took, worked, {self.step}, max(0, without - starved)))  # told when it has one again
            before, used, starved = at, by_now, without


@contextmanager
def _waits_of(thread: int) -> Iterator[int]:
    """Open what the kernel counts of a thread; return -1 where it does not."""
    try:
        file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
    except OSError:
        yield -1
        return
    try:
        yield file
    finally:
        os.close(file)


def _waited(file: int) -> int:
    """Return the nanoseconds for which a thread has waited for a core so far; 0 where nobody counts them."""
    try:
        return int(os.pread(file, 128, 0).split()[1]) if file >= 0 else 0
    except (OSError, ValueError, IndexError):
        return 0


def _processor(clock: int | None) -> int:
    try:
        return time.clock_gettime_ns(clock) if clock is not None else 0
    except OSError:  # the thread has ended
        return 0
