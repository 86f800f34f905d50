"""Signals are passed on to the command that runs, as if nothing stood between."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


@contextmanager
def forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass signals on; a terminal's Ctrl-C reaches the command by itself, so it is only waited for."""

    def pass_on(number: int, _: FrameType | None) -> None:
        if process.poll() is None:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
