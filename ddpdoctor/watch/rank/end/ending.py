"""The last moments of a rank: what it has to say is said before the launcher ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def last_words(*, of_process: bool = False) -> Iterator[list[int]]:
    """Put off SIGTERM, which launchers send as soon as another rank has ended; gives the list of those received.

    ``of_process``: the process ends, and what torch's DataLoader raises when a worker of it ends as well (SIGCHLD)
    tells nothing any more, but would cut off what is being told.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    handlers = {number: signal.getsignal(number) for number in ((signal.SIGTERM, signal.SIGCHLD)[: 1 + of_process])}
    put_off = {
        number: handler
        for number, handler in handlers.items()
        if handler is not None and (number == signal.SIGTERM or callable(handler))
    }
    for number in put_off:
        signal.signal(number, (lambda number, _: received.append(number)) if number == signal.SIGTERM else _let_pass)
    try:
        yield received
    finally:
        for number, handler in put_off.items():
            signal.signal(number, handler)
        if received:
            os.kill(os.getpid(), signal.SIGTERM)


def _let_pass(_number: int, _frame: FrameType | None) -> None:
    """Answer a signal by nothing; SIG_IGN would change how the system ends child processes."""
