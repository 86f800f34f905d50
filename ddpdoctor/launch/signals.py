"""Signals that come while a command runs: passed on to it as if nothing stood between, or held back at its end."""

from __future__ import annotations

import math
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


@dataclass(slots=True)
class Received:
    """The signals that came: ``interrupted`` are the times of Ctrl-C (time.monotonic), ``passed_on`` the others.

    ``first`` is when the first one came (time.time).
    """

    interrupted: list[float] = field(default_factory=list)
    passed_on: list[int] = field(default_factory=list)
    first: float = math.inf


@contextmanager
def forwarding(process: subprocess.Popen[bytes]) -> Iterator[Received]:
    """Pass signals on, and yield which ones came: Ctrl-C reaches the command by itself."""
    received = Received()

    def pass_on(number: int, _: FrameType | None) -> None:
        received.first = min(received.first, time.time())
        received.passed_on.append(number)
        if process.poll() is None:
            process.send_signal(number)

    def interrupt(_: int, __: FrameType | None) -> None:
        received.first = min(received.first, time.time())
        received.interrupted.append(time.monotonic())

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Hold back what would end this process until something that must not stay half done is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
