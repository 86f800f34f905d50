"""A model is freed after its process group was destroyed, and the rank never ends.

## What happens

DistributedDataParallel keeps its process group. `destroy_process_group()` in a function that still holds the model
lets go of the group, and the model, which is freed when the function returns, then ends the group's threads. Over gloo
that can be a deadlock in torch: the main thread keeps the GIL and waits for the thread of gloo's loop, and that thread
waits for the GIL, to free what the last backward has left it. All work is done, "done" is printed, and the process
stays until the job's time is up. Whether it happens is a matter of milliseconds.

## How to be sure

`ddpdoctor run` reports a rank that has called destroy_process_group while a wrapped model was there, whose main thread
has not come to run for --hang-after, in which twice no thread got the GIL to answer, and where a thread of gloo's loop
comes to run again and again. Of a rank that evaluates, saves or uploads after destroy_process_group nothing is said.
`gdb -p PID` shows the main thread in `~ProcessGroupGloo` and a thread pt_gloo_runloop in `~ThreadLocalState`.

## How to mend it

Free the model and the optimizer first: `del model, optimizer`, then `dist.destroy_process_group()`. Or call
`destroy_process_group()` where the model is gone, after the function that trains.

## Versions and sources

Seen with torch 2.13 CPU: without the watch 5 of 15 runs of a small script hung, with `del` none of 20. With torch
2.2.2 and 2.15.0 the broken case of the self-test did not hang in six tries. Source: torch's ProcessGroupGloo.cpp
(`~ProcessGroupGloo` joins its threads), torch/autograd/graph.py (backward leaves a Python context in the state that
its collectives carry). With torch 2.2 it needs no model (group-freed-before-tensors).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, HeldAtEnd, Severity, place, watch

AILMENT = Ailment("DDP742", Severity.ERROR)


@watch(HeldAtEnd)
def at_the_end(event: HeldAtEnd) -> Iterator[Finding]:
    """Yield the rank that is held, and the call of destroy_process_group that came too early."""
    if event.in_call:
        return
    line = f"{Path(event.site.file).name}:{event.site.line}" if event.site else "its end"
    yield Finding(
        f"rank {event.rank} never ends: it frees its model at {line}, after destroy_process_group()",
        (
            Evidence(
                f"{event.models} wrapped {'model was' if event.models == 1 else 'models were'} there",
                "none: `del model` comes first",
                f"destroy_process_group() at {event.destroyed}" if event.destroyed else "destroy_process_group()",
            ),
            Evidence(
                "the main thread has not come to run, keeps the GIL, and a thread of gloo waits for it",
                "the process ends",
                f"rank {event.rank}, for {event.seconds:.0f} s",
            ),
        ),
        Fix(
            "free the model and the optimizer before the group; what hangs now has done its work, and can be killed",
            diff="+del model, optimizer\n dist.destroy_process_group()",
            command=f"kill -9 {event.pid}",
        ),
        place(event.destroyed or event.site, rank=event.rank),
    )
