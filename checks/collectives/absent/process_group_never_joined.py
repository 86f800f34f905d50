"""Several ranks were launched, and none joins a process group: each trains alone.

## What happens

torchrun, srun and their like start N processes; that they are one training is the work of `init_process_group`. Where
that is never called (a branch for one GPU is taken, `dist.is_initialized()` is asked before anybody has called it, the
call was left out) each process takes itself for the only one, goes through all of the data, and writes the same files
as the others.

## How to be sure

The launcher has told each process a WORLD_SIZE of more than one, thirty steps were made, or the training has ended,
and no process has joined a group. ddpdoctor reports it where the ranks have begun with the same weights and the script
has a line that wraps, reduces, or shares data out between ranks.

## How to mend it

    dist.init_process_group()

once in each process, before anything asks for the rank.

Accelerate, and the Trainer of transformers with it, join a group by themselves. On a machine without a GPU they use it
only where they are told that it is to be the CPU: `Accelerator(cpu=True)`, `TrainingArguments(use_cpu=True)`, or
`accelerate launch --cpu`. Without that each process is its own main process, and nothing says so. They join where the
launcher has set LOCAL_RANK, which srun and mpirun do not.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU, accelerate 1.15 and transformers 5.24. Source: PyTorch
documentation, "torch.distributed", initialization.
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
    Severity,
    Started,
    StepFingerprinted,
    TakenForOne,
    Training,
    place,
    watch,
)

from ..._ledgers.calls import REDUCERS, WRAPPERS, calls_of
from ..._ledgers.ledger import begin_alike, built, last_steps
from ...data._passes import wrappings

AILMENT = Ailment("DDP755", Severity.ERROR)
SURE = 30
EARLY = 3
TOGETHER = WRAPPERS | REDUCERS | {"init_process_group", "DistributedSampler", "is_initialized"}
JOIN = Fix("join the process group first", diff="+dist.init_process_group()\n model = build_model()")
OF_ACCELERATE = frozenset({"Accelerator", "TrainingArguments"})
CPU_OF_TRAINER = Fix(
    "tell the Trainer that the ranks train on the CPU: it joins them only then",
    diff="-args = TrainingArguments(output_dir)\n+args = TrainingArguments(output_dir, use_cpu=True)",
)
CPU_OF_ACCELERATE = Fix(
    "tell Accelerate that the ranks train on the CPU: it joins them only then",
    diff="-accelerator = Accelerator()\n+accelerator = Accelerator(cpu=True)",
)
BY_ITS_LAUNCHER = Fix(
    "start the ranks with torchrun or accelerate launch: Accelerate joins those that have a LOCAL_RANK",
    command="torchrun --nproc_per_node=2 train.py",
)


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
    if len(started) < 2 or len(ranks) < 2:  # noqa: PLR2004 - one trains alone by right
        return
    held = built(event, training)
    files = {each.site.file for each in (held, event) if each is not None and each.site is not None}
    if [*training.of(Joining), *training.of(Joined)]:
        yield from _apart(training, files)
        return
    first = training.by_rank(StepFingerprinted, optimizer=event.optimizer, number=1)
    made = calls_of(files, OF_ACCELERATE)
    alike = held is not None and begin_alike(held, list(first.values()))
    if lines := made or (calls_of(files, TOGETHER) if alike else []):
        yield Finding(
            f"{len(ranks)} ranks train, and none has joined a process group: each trains alone, on all of the data",
            (
                Evidence(f"WORLD_SIZE={started[0].world_size}", "", "the launcher"),
                Evidence(
                    f"no call of init_process_group up to step {event.number}", "one in each process", "all ranks"
                ),
                Evidence("a line that is meant for several ranks", "", str(lines[0])),
            ),
            BY_ITS_LAUNCHER if made else JOIN,
            lines[0],
        )


def _apart(training: Training, files: set[str]) -> Iterator[Finding]:
    """Look for ranks that Accelerate has joined, and has not found the device of: it takes each for the only one."""
    alone = training.by_rank(TakenForOne)
    if len(alone) < 2 or wrappings(training):  # noqa: PLR2004 - as above
        return
    told = alone[min(alone)]
    by_trainer = calls_of(files, frozenset({"TrainingArguments"}))
    line = next(iter(by_trainer or calls_of(files, frozenset({"Accelerator"}))), place(told.site))
    yield Finding(
        f"{len(alone)} ranks have joined a group, and Accelerate takes each for the only one: each trains alone, on "
        "all of the data",
        (
            Evidence(f"WORLD_SIZE={told.world_size}", "", "the launcher"),
            *(Evidence("num_processes=1, is_main_process=True", "", f"rank {rank}") for rank in sorted(alone)[:4]),
        ),
        CPU_OF_TRAINER if by_trainer else CPU_OF_ACCELERATE,
        line,
    )
