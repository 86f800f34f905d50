"""Now one rank has more to compute in a step and now another, and each time the others wait for it.

## What happens

The ranks meet in each step, and the one that has most to do sets its pace. Where batches differ in size at random
(sequences of all lengths, graphs, images of all shapes), each rank is as fast as the others over an epoch, and all of
them wait all the same: with two ranks for the larger of two batches, with eight for the largest of eight.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` counts what the thread that trains computes in each step, by the time of its
processor, which is the same on a machine that others use as well. ddpdoctor finds it where the rank that computes most
has a fifth more than the mean of the ranks over all measured steps, 3 ms a step or more, and a tenth more in two fifths
of them, no rank is the one in more than four fifths of them or has more than four fifths of what is too much (that is
one-rank-is-slow), and no more than half of it all is beside the model: a slow transform is the loader's.

## How to mend it

Let the ranks' batches of one step be alike: sort samples by length into buckets, draw each step's batches from one of
them on all ranks (a batch sampler with one seed), or fill each batch up to a number of tokens instead of samples.
Pad to the longest of a batch, not of the data set.

## Versions and sources

Holds for torch 2.2 to 2.13, on a CPU. Source: PyTorch documentation, "Distributed Data Parallel", internal design.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LineKind,
    LinesSampled,
    Profiled,
    Severity,
    StepFingerprinted,
    StepsTimed,
    Training,
    watch,
)

from ..._findings.places import line_of_last
from .._steps import on_cpu

AILMENT = Ailment("DDP915", Severity.NOTE)
FEWEST = 20  # steps
MUCH, EACH, MANY_STEPS = 0.2, 0.1, 0.4  # of what the busiest rank computes: of all steps; of one; how many of them
ALWAYS = 0.8  # of the steps: one rank that is the busiest in so many is slow by itself
LEAST = 0.003  # seconds of a step
HALF = 0.5  # of what the ranks compute
OF_THE_MODEL = {
    LineKind.FORWARD,
    LineKind.MODULE_CALLED,
    LineKind.RECOMPUTED,
    LineKind.BACKWARD,
    LineKind.GRAPH_SEARCHED,
    LineKind.BUFFERS_BROADCAST,
}
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare what the busiest rank computes in each step with the mean of all."""
    on_cpu(event)
    measured = training.complete(Profiled)
    steps = list(zip(*(each.worked for each in measured.values()), strict=False))
    if len(steps) < FEWEST or any(each.threads > 1 for each in event.ranks):  # other threads compute then as well
        return
    most = [max(step) for step in steps]
    more = [max(step) - statistics.fmean(step) for step in steps]
    part = sum(more) / max(1, sum(most))
    seconds = sum(more) / len(steps) / 1e9
    often = sum(one >= EACH * whole for one, whole in zip(more, most, strict=True)) / len(steps)
    if part < MUCH or often < MANY_STEPS or seconds < LEAST or _is_one_rank(steps) or not _is_the_model(training):
        return
    yield replace(
        _finding(measured, part, seconds, sum(most) / len(steps) / 1e9), place=line_of_last(StepFingerprinted, training)
    )


def _is_one_rank(steps: Sequence[tuple[int, ...]]) -> bool:
    """Whether one rank is the busiest in nearly all steps, or has nearly all that is more than the mean."""
    times, more = Counter[int](), Counter[int]()
    for step in steps:
        busiest = step.index(max(step))
        times[busiest] += 1
        more[busiest] += int(max(step) - statistics.fmean(step))
    return max(times.values()) > ALWAYS * len(steps) or max(more.values()) > ALWAYS * max(1, more.total())


def _is_the_model(training: Training) -> bool:
    """Whether no more than half of what the ranks compute is beside the model, as what the loader does is."""
    told = training.by_rank(LinesSampled).values()
    whole = sum(each.processor for each in told)
    beside = sum(line.processor for each in told for line in each.sampled if line.kind not in OF_THE_MODEL)
    return beside <= HALF * whole


def _finding(measured: Mapping[int, Profiled], part: float, seconds: float, most: float) -> Finding:
    return Finding(
        f"the ranks have different work in each step, now one more and now another: the busiest computes "
        f"{1e3 * most:.1f} ms a step, {1e3 * seconds:.1f} ms more than they do on average, {part:.0%}",
        tuple(
            Evidence(_spread(each), "" if at else "alike in each step", f"rank {rank}, {len(each.worked)} steps")
            for at, (rank, each) in enumerate(list(measured.items())[:SHOWN])
        ),
        Fix(
            "make the batches of one step alike on all ranks: bucket samples by length, and draw from one bucket on "
            "all ranks, or fill each batch up to a number of tokens: the busiest rank computes about "
            f"{1e3 * (most - seconds):.1f} instead of {1e3 * most:.1f} ms a step where they are"
        ),
    )


def _spread(each: Profiled) -> str:
    ordered = sorted(each.worked)
    tenth = len(ordered) // 10
    low, middle, high = (value / 1e6 for value in (ordered[tenth], statistics.median(ordered), ordered[-1 - tenth]))
    return f"computes {middle:.1f} ms a step ({low:.1f} to {high:.1f})"
