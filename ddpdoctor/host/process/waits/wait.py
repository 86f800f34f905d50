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


def taken_before_fork(name: str) -> Awaited:
    """Return that a process was forked from one of which another thread held a lock: that did not come along."""
    return Awaited(
        f"{name}, which was taken when this process was forked, and which no thread here can give back",
        "make the lock anew in each worker, DataLoader(..., worker_init_fn=...), or start the thread that takes it "
        'after the workers; where the data set can be pickled, multiprocessing_context="spawn" copies no lock',
    )


OF_NATIVE_THREADS = Awaited(
    "a thread of native code (OpenMP, OpenCV, ...), of which it has none: the rank had used them before this "
    "process was forked, and they did not come along",
    "start it by the method spawn: multiprocessing.get_context('spawn'), or DataLoader(..., "
    'multiprocessing_context="spawn"); or let it use one thread: torch.set_num_threads(1), cv2.setNumThreads(0)',
)
"""Of a forked process that waits for nobody, and in no code of Python's."""
OF_PYTHON = ("/threading.py", "/queue.py", "/concurrent/futures/_base.py", "/multiprocessing/")
THE_STORE = "the ranks' store"
OWN_STORE = "a TCPStore of the script's own"
KEY_IS_SET = "which comes when a rank sets the key"
"""What is said of a wait for a key of either store."""
SHARED = "/multiprocessing/synchronize.py"
OF_PROCESSES = Awaited(
    "a lock or a queue that it shares with other processes",
    "look at the processes that it has started, or that were started beside it: one has ended, or stands, and holds it",
)
