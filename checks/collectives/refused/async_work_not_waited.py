"""An asynchronous collective is not waited for: its handle is dropped, or the optimizer steps before.

## What happens

With `async_op=True` a collective returns at once, and its tensor changes some time later. A script that drops the
handle reads, or changes, the tensor while ranks still add to it: numbers that are right on one day and wrong on the
next, different on each rank. Where gradients are exchanged that way, for example in hooks that overlap the exchange
with the backward, and the wait is left out or comes after `optimizer.step()`, a step takes the sum of all ranks, its
own gradient, or a half of each; the weights of the ranks part.

## How to be sure

ddpdoctor (`ddpdoctor run`) reports a line of the script where the handle was freed several times, and nobody had
called `wait()`, `is_completed()`, `get_future()` or any other method of it. It also reports two sampled steps that were
given gradients to which such a collective of gloo still wrote. Over NCCL, which runs the collectives of
a group in order, a wait for a later one counts for those before it; over gloo it does not. Handles that libraries
hold, and send, recv and barrier, are not looked at. Over NCCL it is a warning, since a synchronisation of the device
waits for the collective, too.

## How to mend it

Keep the handle, and call `handle.wait()` before the tensor is used; or leave `async_op=True` out.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.distributed",
synchronous and asynchronous collective operations.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    AsyncWorkDropped,
    Evidence,
    Finding,
    Fix,
    GradientsInFlight,
    Joined,
    Place,
    Severity,
    Training,
    place,
    watch,
)

AILMENT = Ailment("DDP750", Severity.ERROR)


@watch(AsyncWorkDropped)
def while_training(event: AsyncWorkDropped, training: Training) -> Iterator[Finding]:
    """Report the line that begins the collective."""
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


@watch(GradientsInFlight)
def of_gradients(event: GradientsInFlight, training: Training) -> Iterator[Finding]:
    """Report, once, the line that steps too early, and the one that began the exchange."""
    if next(training.before(event), None) is not None:
        return
    yield Finding(
        f"the optimizer steps while {event.operation} still writes to the gradients: nobody has waited for it",
        (
            Evidence(
                f"{event.parameters} gradients of async_op=True, without a call of wait()",
                "handle.wait() for each before the step",
                f"rank {event.rank}, {event.count} steps",
            ),
            Evidence(f"dist.{event.operation}(..., async_op=True)", "", str(event.site)),
        ),
        Fix(
            "wait for all handles before the step",
            diff="+for handle in handles:\n+    handle.wait()\n+handles.clear()\n optimizer.step()",
        ),
        Place(file=event.file, line=event.line, rank=event.rank) if event.file else place(event.site, rank=event.rank),
    )
