"""An exception has ended a thread of a rank, and the rank waits for what the thread was to do.

## What happens

A script leaves work to a thread of its own: reading ahead into a queue, writing checkpoints, sending metrics. An
exception ends the thread alone. Python prints it ("Exception in thread Thread-1"), far above in the log, and the main
thread goes on until it needs the thread: it waits in `queue.get()` or `queue.join()` for ever, and the other ranks wait
for this one in the next collective.

## How to be sure

`ddpdoctor run` sees the exception that ends the thread, the line at which the rank stands still, waiting for a lock, a
queue or a thread of its own, and the ranks that wait for it.

## How to mend it

Mend what the exception says. Then hand errors on: catch them in the thread, put them into the queue, and raise them
where the queue is read, so that the rank fails at once and the launcher ends the others. `concurrent.futures` does so
by itself: `future.result()` raises what the work raised.

## Versions and sources

Holds for all versions of torch. Source: Python's documentation of threading.excepthook.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, Stalled, Training, place

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._told import seen, short, table
from ..hangs.reasons._threads import ended_thread

AILMENT = Ailment("DDP706", Severity.ERROR)


@on_hang(Hang.THREAD)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Yield the thread's exception and its line, and where its rank waits."""
    found = ended_thread(event, training)
    assert found is not None  # noqa: S101 - else it would be another hang
    position, failed = found
    yield Finding(
        f"rank {position.rank} waits at {short(position.site)} for a lock, a queue or a thread of its own; "
        f"{failed.said.partition(':')[0]} has ended its thread {failed.thread} at {short(failed.site)}",
        (
            Evidence(f"{failed.said} at {failed.site}", "the thread goes on", f"rank {position.rank}, {failed.thread}"),
            *seen(event),
        ),
        Fix(
            "mend what ends the thread, and hand its errors on to the main thread",
            diff=" def run(self):\n+    try:\n         ...\n+    except Exception as exc:\n"
            "+        self.queue.put(exc)\n ...\n item = self.queue.get()\n"
            "+if isinstance(item, Exception):\n+    raise item",
        ),
        place(failed.site or position.site, rank=position.rank),
        table=table(event),
    )
