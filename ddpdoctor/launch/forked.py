"""A process that is forked from this one, and writes to a pipe what it makes: where a second core is worth it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess


def forked(make: Callable[[Connection], None]) -> tuple[Connection, ForkProcess]:
    """Start a process that calls a function with the end of a pipe to write to; return the other end, and the process.

    It ends with this one. Signals end it at once: the process that reads says what has ended it.
    """
    import multiprocessing  # most commands start none

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_make, args=(make, sender), daemon=True)
    process.start()
    sender.close()
    return receiver, process


def _make(make: Callable[[Connection], None], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    make(sender)
