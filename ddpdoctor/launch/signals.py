"""Signals that come while a command runs: passed on to it as if nothing stood between, or held back at its end."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


@contextmanager
def forwarding(process: subprocess.Popen[bytes]) -> Iterator[list[float]]:
    """Pass signals on; yield when Ctrl-C came (time.monotonic): it reaches the command by itself."""
    interrupted: list[float] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if process.poll() is None:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: interrupted.append(time.monotonic()))
    try:
        yield interrupted
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
