"""A forked process, as a loader's worker, communicates through the process group of its rank.

## What happens

A fork copies the memory of a rank and none of its threads. The process group in the copy looks as it did, and the
threads that do its work are not there: with gloo, `all_reduce`, `barrier`, `send` and the others never return in a
process that the rank has forked, and NCCL ends in "Cannot re-initialize CUDA in forked subprocess". Where a data set
calls a collective in `__getitem__` or in a `collate_fn`, each worker of the loader stands still at its first sample,
and the training waits for a batch that never comes, without a word. `get_rank()` and `get_world_size()` work: they only
read.

## How to be sure

`ddpdoctor run` names the call, its line, and the process. By hand: `py-spy dump --pid` of a worker shows the call.

## How to mend it

Communicate in the rank itself, before the loader is iterated or after a batch has come; what the workers need to know
they are given as arguments. A process of its own that has to communicate is started by "spawn" and makes a group of its
own, at another port.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with 2.13 and gloo. Source: torch's ProcessGroupGloo.cpp, whose work is done by
threads that its constructor starts; fork(2).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, Training, UsedInFork, place, watch

from ..hangs._told import short

AILMENT = Ailment("DDP727", Severity.ERROR)
IN_THE_RANK = Fix(
    "communicate in the rank, and hand the result to the workers",
    diff=" class Data(Dataset):\n     def __getitem__(self, index):\n-        dist.all_reduce(total)\n"
    " for batch in loader:\n+    dist.all_reduce(total)   # in the loop of the rank",
)
OF_ITS_OWN = Fix(
    "start the process anew, with a group of its own at another port",
    diff='-ctx = multiprocessing.get_context("fork")\n+ctx = multiprocessing.get_context("spawn")\n'
    ' def side():\n+    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=2)\n'
    "     dist.all_reduce(total)",
)


@watch(UsedInFork)
def while_training(event: UsedInFork, training: Training) -> Iterator[Finding]:
    """Report the first call of each line; other processes and ranks that make it say the same."""
    same = [each for each in training.of(UsedInFork) if each.site == event.site]
    if not same or same[0] is not event:
        return
    who = "a worker of a loader" if event.worker else "a process that it has forked"
    yield Finding(
        f"rank {event.rank}'s process group is used in {who}: {event.operation} at {short(event.site)} never returns",
        (
            Evidence(
                f"{event.operation} of {event.backend} in process {event.child}",
                f"in process {event.pid}, which made the group",
                f"rank {event.rank}, {event.site}",
            ),
        ),
        IN_THE_RANK if event.worker else OF_ITS_OWN,
        place(event.site, rank=event.rank),
    )
