"""A rank never ends: it waits for a thread of its own, and that thread waits for what nobody brings.

## What happens

Python ends a process when its main thread has ended and all other threads have that are no daemons. A thread that
uploads, logs or prefetches and takes its work from a queue waits in `queue.get()` for ever once nobody puts anything
into it. "done" is printed, the other ranks are gone, and torchrun waits for this one until the job's time is up. A
`thread.join()` in the script is the same. Where a rank has a barrier behind it, the others wait there until the
time-out of the group.

A process that multiprocessing has started ends only when what it has put into a queue is written. Where that is more
than a pipe holds (64 KiB), and the parent waits in `join()` before it calls `get()`, each waits for the other.

## How to be sure

`ddpdoctor run` reports a rank of which nothing has come to run for --hang-after, whose main thread joins a thread, and
whose other threads of Python's all wait in lines of the script without a time-out. Of a rank with a thread that sends,
reads, sleeps or asks again and again nothing is said. `py-spy dump --pid PID` shows the main thread in `_shutdown`.

## How to mend it

Tell the thread that there is no more: put a last value into its queue that ends its loop, as None, also where the
training ends by an exception (`finally`). Take results out of a queue of multiprocessing before the processes are
joined; with `mp.spawn`, let rank 0 save them to a file. Where what is left in the queue can be lost, make the thread a
daemon.

## Versions and sources

Holds for torch 2.2 to 2.13 and Python 3.10 to 3.14. Sources: Python's Lib/threading.py, `_shutdown` and `Thread.join`;
Python documentation, "multiprocessing", "Joining processes that use queues".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, KeptAtEnd, Place, Severity, Training, place, watch

from ...hangs._told import short
from ._full_queue import ReadLate, read_late

AILMENT = Ailment("DDP1706", Severity.ERROR)


@watch(KeptAtEnd)
def at_the_end(event: KeptAtEnd, training: Training) -> Iterator[Finding]:
    """Yield the line that the thread waits in, and where the rank waits for it."""
    if event.feeds:
        yield _with_a_full_queue(event, read_late(event, training))
        return
    where = f"in join() at {event.joined}" if event.joined else "at the end of its program"
    yield Finding(
        f"rank {event.rank} never ends: it waits {where} for a thread that waits at {short(event.site)} for what "
        "no thread of it does any more",
        (
            Evidence(
                f"{event.threads} {'thread waits' if event.threads == 1 else 'threads wait'} without a time-out",
                "each thread comes to its end",
                f"rank {event.rank}, for {event.seconds:.0f} s",
            ),
        ),
        Fix(
            "end the thread's loop by a last value in its queue; what hangs now has done its work, and can be killed",
            diff=" finally:\n+    queue.put(None)   # the thread returns where it gets None\n     thread.join()",
            command=f"kill {event.pid}",
        ),
        place(event.site, rank=event.rank),
    )


def _with_a_full_queue(event: KeptAtEnd, late: ReadLate | None) -> Finding:
    there = (
        f" before the processes have ended: {short(late.waits)} waits for them, and {short(late.reads)} reads it then"
        if late
        else ""
    )
    return Finding(
        f"rank {event.rank} never ends: what it has put into a queue of multiprocessing is more than its pipe holds, "
        f"and nobody reads it{there}",
        (
            Evidence(
                "it is at its end, and the thread of the queue stands where it writes",
                "a reader of the queue",
                f"rank {event.rank}, for {event.seconds:.0f} s",
            ),
            *(Evidence("it fills the queue", "", str(each)) for each in (late.fills[:3] if late else ())),
        ),
        Fix(
            "take out of the queue before the processes are joined",
            diff="+result = queue.get()\n for process in processes:\n     process.join()\n-result = queue.get()",
            command=f"kill {event.pid}",
        ),
        place(late.waits, rank=event.rank) if late else Place(rank=event.rank),
    )
