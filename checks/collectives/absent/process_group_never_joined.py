"""Several ranks were launched, and none joins a process group: each trains alone.

## What happens

torchrun, srun and their like start N processes; that they are one training is the work of `init_process_group`. Where
that is never called (a branch for one GPU is taken, `dist.is_initialized()` is asked before anybody has called it, the
call was left out) each process takes itself for the only one, goes through all of the data, and writes the same files
as the others.

## How to be sure

The launcher has told each process a WORLD_SIZE of more than one, thirty steps were made, or the training has ended, and
no process has joined a group. ddpdoctor reports it where the ranks have begun with the same weights and the script has
a line that wraps, reduces, or shares data out between ranks.

## How to mend it

    dist.init_process_group()

once in each process, before anything asks for the rank.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.distributed",
initialization.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ended,
    Evidence,
    Finding,
    Fix,
    Joined,
    Joining,
    Place,
    Severity,
    Started,
    StepFingerprinted,
    Training,
    watch,
)

from ..._ledger import REDUCERS, WRAPPERS, begin_alike, built, calls_of, last_steps

AILMENT = Ailment("DDP755", Severity.ERROR)
SURE = 30
EARLY = 3
TOGETHER = WRAPPERS | REDUCERS | {"init_process_group", "DistributedSampler", "is_initialized"}


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at a step that is late enough."""
    if event.number >= SURE:
        yield from _judged(event, training)


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look at the last step that was compared."""
    for event in last_steps(training, EARLY):
        yield from _judged(event, training)


def _judged(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    started = [each for each in training.of(Started) if each.world_size > 1]
    ranks = {each.rank for each in training.of(StepFingerprinted, optimizer=event.optimizer, number=event.number)}
    joined = [*training.of(Joining), *training.of(Joined)]
    if joined or len(started) < 2 or len(ranks) < 2:  # noqa: PLR2004 - one trains alone by right
        return
    first = training.by_rank(StepFingerprinted, optimizer=event.optimizer, number=1)
    held = built(event, training)
    if held is None or not begin_alike(held, list(first.values())):
        return
    files = {each.site.file for each in (held, event) if each.site is not None}
    if not (lines := calls_of(files, TOGETHER)):
        return
    yield Finding(
        f"{len(ranks)} ranks train, and none has joined a process group: each trains alone, on all of the data",
        (
            Evidence(f"WORLD_SIZE={started[0].world_size}", "", "the launcher"),
            Evidence(f"no call of init_process_group up to step {event.number}", "one in each process", "all ranks"),
            Evidence("a line that is meant for several ranks", "", str(lines[0])),
        ),
        Fix("join the process group first", diff="+dist.init_process_group()\n model = build_model()"),
        Place(file=lines[0].file, line=lines[0].line),
    )
