"""destroy_process_group() never returns: it waits for a thread of gloo, which waits for it.

## What happens

Over gloo, `destroy_process_group()` ends the group's threads. A thread that has just finished the last collective lets
go of its tensors. Where the script has let go of them before (the function that called `all_reduce` has returned), the
thread is the last that holds them, and needs the GIL to free them. The main thread keeps the GIL while it waits for the
thread to end: a deadlock in torch. All work is done, and the process stays until the job's time is up. Whether it
happens is a matter of microseconds.

## How to be sure

`ddpdoctor run` reports a rank that is inside of destroy_process_group, whose main thread has not come to run for
--hang-after, in which twice no thread got the GIL to answer, and where another thread asks for it again and again.
`gdb -p PID` shows the main thread in `~ProcessGroupGloo` and a thread in `~AsyncWork` and `gil_scoped_acquire`.

## How to mend it

Keep the tensors of the last collectives until the group is gone: call `destroy_process_group()` in the function that
holds them. Newer torch has not shown it.

## Versions and sources

torch 2.2.2, without the watch: 28 of 104 runs of an evaluation that ends with `all_reduce` and
`destroy_process_group()` hung, 5 of 60 with a barrier between, none of 60 where the script kept the tensors. torch
2.13.0: none of 120. Source: the stacks of both threads; torch's ProcessGroupGloo.cpp (`~ProcessGroupGloo` joins its
threads), PyObjectSlot.cpp (a tensor that Python has let go of frees its Python object under the GIL).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, HeldAtEnd, Severity, place, watch

AILMENT = Ailment("DDP731", Severity.ERROR)


@watch(HeldAtEnd)
def at_the_end(event: HeldAtEnd) -> Iterator[Finding]:
    """Yield the rank that is held in the call itself."""
    if not event.in_call:
        return
    yield Finding(
        f"rank {event.rank} never ends: destroy_process_group() waits for a thread of gloo, which waits for the GIL",
        (
            Evidence(
                "the main thread is in destroy_process_group(), has not come to run, and keeps the GIL",
                "it returns",
                f"rank {event.rank}, for {event.seconds:.0f} s",
            ),
            Evidence("another thread asks for the GIL again and again", "none", f"process {event.pid}"),
        ),
        Fix(
            "keep the tensors of the last collectives until the group is gone, or use a newer torch; what hangs now "
            "has done its work and can be killed",
            diff=" def evaluate():\n     dist.all_reduce(error)\n+    return error\n\n-evaluate()\n+error = evaluate()"
            "\n dist.destroy_process_group()",
            command=f"kill -9 {event.pid}",
        ),
        place(event.destroyed or event.site, rank=event.rank),
    )
