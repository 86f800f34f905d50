"""The last moments of a rank: what it has to say is said before the launcher ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def last_words() -> Iterator[list[int]]:
    """Put off SIGTERM, which launchers send as soon as another rank has ended; gives the list of those received."""
    before = signal.getsignal(signal.SIGTERM)
    received: list[int] = []
    if before is None or threading.current_thread() is not threading.main_thread():
        yield received
        return
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)
        if received:
            os.kill(os.getpid(), signal.SIGTERM)
