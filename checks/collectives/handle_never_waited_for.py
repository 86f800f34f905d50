"""The handle of an asynchronous collective is dropped without a wait.

With `async_op=True` a collective returns at once, and its tensor changes some time later. A script that throws the
handle away reads, or changes, the tensor while ranks still add to it: numbers that are right on one day and wrong on
the next, different on each rank.

How to be sure: in one line of the script the handle was freed several times, and nobody had called `wait()`,
`is_completed()`, `get_future()` or any other method of it. Over NCCL, which runs the collectives of a group in order, a
wait for a later one counts for those before it; over gloo it does not.

How to mend it: keep the handle and wait before the tensor is used; or leave `async_op` away.

Handles of libraries are their own matter; send, recv and barrier are not looked at. Over NCCL it is a warning, since a
synchronisation of the device waits, too.

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.distributed",
synchronous and asynchronous collective operations.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import watch
from ddpdoctor.watch.events import Joined, Unwaited, place
from ddpdoctor.watch.training import Training

CARD = Card("DDP750", Severity.ERROR)


@watch(Unwaited)
def while_training(event: Unwaited, training: Training) -> Iterator[Finding]:
    """Tell the line that begins the collective."""
    joined = training.of(Joined, pid=event.pid)
    gloo = bool(joined) and joined[-1].backend == "gloo"
    yield Finding(
        f"nobody waits for this {event.operation}: its tensor is used while ranks still write to it",
        (
            Evidence(
                f"the handle was freed {event.count} times, without a call of wait()",
                "handle.wait() before the tensor is used",
                f"rank {event.rank}",
            ),
        ),
        Fix(
            "wait for it",
            diff=f"-dist.{event.operation}(tensor, async_op=True)\n"
            f"+handle = dist.{event.operation}(tensor, async_op=True)\n+handle.wait()",
        ),
        place(event.site),
        severity=None if gloo else Severity.WARNING,
    )
