"""What a process waits for, as it is told."""

from __future__ import annotations

from typing import NamedTuple


class Awaited(NamedTuple):
    """``what`` completes "it waits for"; ``mend`` and ``command`` are what to do about it.

    ``process`` is whom it waits for, 0 where nobody is known. ``thread``: a lock, a queue or a thread of its own, of
    which the kernel knows no more. ``typed``: somebody is to type. ``port`` is that of the other end of a connection.
    """

    what: str
    mend: str = ""
    command: str = ""
    process: int = 0
    thread: bool = False
    typed: bool = False
    port: int = 0


THE_STORE = "the ranks' store"
SHARED = "/multiprocessing/synchronize.py"
OF_PROCESSES = Awaited(
    "a lock or a queue that it shares with other processes",
    "look at the processes that it has started, or that were started beside it: one has ended, or stands, and holds it",
)
