"""One rank works longer in each step than the others, and they wait for it.

## What happens

The ranks meet in each backward, and the slowest sets the pace of all. What makes one slow: rank 0 that logs, evaluates
or writes within the step; longer sequences; fewer cores than the others have; another process beside it.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND`: the rank's forward, optimizer or the rest of its step is longer, and the
others' backward is longer by as much. ddpdoctor finds it where that is more than a fifth of the step and 5 ms, of the
same rank in nearly all of 40 steps or more; and not where a rank's wait for a core explains it: on a loaded machine
nothing can be told, unless the rank computes so much more (with `--profile`, which names the line).

By the clock the backward of all ranks ends together. So with `--profile` it is found as well where each step takes 1.4
times the processor's time of all other ranks, a fifth of the step more, and they wait in their backwards meanwhile; and
where they wait elsewhere (in a barrier behind `if rank == 0:`): in every tenth step or more often (three tenths of the
time: in three steps or more) the rank has a fifth of its time, and 2 ms a step, in lines that no other rank comes to,
while these wait in a backward or a collective. What a rank waits for a core is left out of both, so a loaded machine
does not hide it. Where kernels run on a GPU, the clock on the wall does not tell either, and ddpdoctor says nothing.

## How to mend it

The finding says which part of the step is longer. For forward: compare the sizes of the batches, and the cores of the
ranks. For the rest of the step: what `if rank == 0:` does there, do every hundredth step, or after the epoch; let each
rank evaluate, and load, its share of the data; write checkpoints from a thread
(`torch.distributed.checkpoint.async_save`).

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, "Distributed Data Parallel", internal design.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LineKind,
    LinesSampled,
    Place,
    Profiled,
    RankSteps,
    SampledLine,
    Severity,
    StepsTimed,
    Training,
    watch,
)

from .._lines import computes_to_load, is_of_others, more_than_others, seen as seen_line
from .._steps import LARGE, Behind, behind, middle, on_cpu, promise_of_mean, seen
from ..source._at_line import ASLEEP, what_at
from ..source._evaluated import evaluation_at
from ._alone import Alone, alone
from ._computing import computes_longer
from ._what_it_reads import look_at_what_it_reads

AILMENT = Ailment("DDP904", Severity.NOTE)
SHOWN = 4  # ranks
PARTS = {"forward": "forward", "optimizer": "the optimizer's step", "rest": "the rest of the step"}


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for the rank that the others wait for, in step after step, and for what is its own."""
    on_cpu(event)
    late = behind(event, "own")
    others = [each for each in event.ranks if late and each is not late.rank]
    fewer = late is not None and late.rank.cpus < min(each.cpus for each in others)
    starved = max(each.starved for each in event.ranks)
    if late is None or (
        not fewer and max(late.share - starved, _computes_more(training, late.rank, others)) < LARGE
    ):  # another process may have had its core
        if (found := alone(event, training)) is not None:
            yield _alone(found)
        elif (longer := computes_longer(event, training)) is not None:
            loads = _is_loading(longer, training)
            if not loads or behind(event, "data") is None:  # else its loader is told by its own check
                yield _computing(longer, training, loads=loads)
        return
    line = more_than_others(training, late.rank.rank)
    shared = line is not None and is_of_others(training, late.rank.rank, line)
    if line is not None and shared and _sleeps(line):  # who comes first sleeps longest: told with the line itself
        return
    told = training.by_rank(LinesSampled).get(late.rank.rank)
    excess = {part: middle(late.rank, part) - statistics.median(middle(each, part) for each in others)
              for part in PARTS}  # fmt: skip
    part = max(excess, key=lambda each: excess[each])
    yield Finding(
        f"rank {late.rank.rank} works {1e3 * late.seconds:.0f} ms a step longer than the others, in {PARTS[part]}, and "
        f"they wait for it: {late.share:.0%} of each step",
        (
            seen(late.rank, part, PARTS[part], "as the other ranks"),
            *(seen(each, part, PARTS[part]) for each in others[: SHOWN - 1]),
            *(seen(each, "backward", "backward, with its wait for the others,")
              for each in (late.rank, *others[: SHOWN - 1])),
            *_own(late.rank, others),
            *([seen_line(late.rank.rank, told, line)] if line and told else []),
        ),
        _fix(late, part, fewer=fewer, line=line if shared else None),
        Place(rank=late.rank.rank) if line is None else
        Place(rank=late.rank.rank, file=line.inner_file, line=line.inner_line),
    )  # fmt: skip


def _sleeps(line: SampledLine) -> bool:
    at = what_at(line.inner_file, line.inner_line)
    return at is not None and at[0] == ASLEEP


def _is_loading(late: Behind, training: Training) -> bool:
    """Whether it is in its loader, in the process that trains, that a rank computes longer."""
    mine, *others = (
        computes_to_load(training, rank)
        for rank in (late.rank.rank, *(each for each in training.by_rank(Profiled) if each != late.rank.rank))
    )
    return mine - statistics.median(others) >= late.seconds / 2


def _computing(late: Behind, training: Training, *, loads: bool) -> Finding:
    """Tell of a rank whose forward and backward, or loader, compute longer."""
    measured = training.by_rank(Profiled)
    order = [late.rank.rank, *(rank for rank in measured if rank != late.rank.rank)]
    return Finding(
        f"rank {late.rank.rank} computes {1e3 * late.seconds:.0f} ms a step longer than the others, in "
        f"{'its loader' if loads else 'forward and backward'}, and they wait for it: {late.share:.0%} of each step",
        tuple(
            Evidence(
                f"computes {statistics.median(measured[rank].worked) / 1e6:.1f} of "
                f"{statistics.median(measured[rank].total) / 1e6:.1f} ms a step",
                "" if at else "as the other ranks",
                f"rank {rank}, {len(measured[rank].worked)} steps, by the processor's time",
            )
            for at, rank in enumerate(order[:SHOWN])
        ),
        _fix(late, "data" if loads else "forward", fewer=False),
        Place(rank=late.rank.rank),
    )


def _alone(found: Alone) -> Finding:
    """Tell of a rank that does, now and then, what the others do not."""
    number, line, told = found.rank.rank, found.line, found.told
    often = f"in {line.steps} of {told.steps} steps" if line.steps < told.steps else "in each step"
    then = f"{promise_of_mean(found.step, found.seconds / found.step)} without it"
    return Finding(
        f"rank {number} alone works {1e3 * found.seconds:.0f} of {1e3 * found.step:.0f} ms a step at "
        f"{line.file}:{line.line}, {often}, and the others wait for it: {found.seconds / found.step:.0%}",
        (seen_line(number, told, line, "as the other ranks"), seen_line(*found.waits)),
        Fix(
            "write checkpoints less often, or from a thread (torch.distributed.checkpoint.async_save): " + then
            if line.kind == LineKind.CHECKPOINT_WRITTEN
            else f"let each rank load its own batches, by a DistributedSampler: {then}"
            if line.kind == LineKind.DATA
            else "evaluate less often, as once an epoch, and on all ranks: each its share (a DistributedSampler of the "
            f"evaluation's data), whose counts are added up (all_reduce): {then}"
            if evaluation_at(line.file, line.line)
            else f"do it less often, or after the epoch; let each rank evaluate its share: {then}"
        ),
        Place(rank=number, file=line.inner_file, line=line.inner_line),
    )


def _own(rank: RankSteps, others: list[RankSteps]) -> Iterator[Evidence]:
    """Yield what the rank has less, or more, of than all others."""
    for what, mine, theirs in (
        ("cores it may run on", rank.cpus, {each.cpus for each in others}),
        ("threads of an operation", rank.threads, {each.threads for each in others}),
    ):
        if theirs != {mine}:
            said = ", ".join(map(str, sorted(theirs)))
            yield Evidence(f"{what}: {mine}", f"{said}, as the others", f"rank {rank.rank}")


def _computes_more(training: Training, rank: RankSteps, others: list[RankSteps]) -> float:
    """Return what share of its computing a rank does beside backward that the others do not; 0 if not looked at."""
    told = training.by_rank(LinesSampled)
    if any(each.rank not in told for each in (rank, *others)):
        return 0.0
    own = {
        each.rank: sum(
            line.processor for line in told[each.rank].sampled if line.kind not in {LineKind.BACKWARD, LineKind.DATA}
        )
        / told[each.rank].steps
        for each in (rank, *others)
    }
    whole = told[rank.rank].processor / told[rank.rank].steps
    return (own[rank.rank] - max(own[each.rank] for each in others)) / max(1.0, whole)


def _fix(late: Behind, part: str, *, fewer: bool, line: SampledLine | None = None) -> Fix:
    """Return what makes the rank as fast as the others; ``line`` is one that they come to as well."""
    number = late.rank.rank
    then = f"{late.promise} where it is as fast as they"
    if fewer:
        return Fix(f"give rank {number} as many cores as the others (taskset, numactl, --cpus-per-task): {then}")
    if part == "data":
        return Fix(f"{look_at_what_it_reads(number)}: {then}")
    if line is not None and part != "forward":
        at = f"{line.inner_file}:{line.inner_line}"
        return Fix(
            f"find out why {at} takes longer on rank {number} than on the others, which come to it as well: what it is "
            f"given there, and how often: {then}"
        )
    if part == "forward":
        return Fix(f"make all ranks' batches alike: bucket samples by length, and shuffle with one seed: {then}")
    return Fix(f"take what rank {number} alone does out of the step, or do it every hundredth time: {then}")
