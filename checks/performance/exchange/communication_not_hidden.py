"""The backward waits for communication: little of it is hidden behind the computing.

## What happens

DDP averages gradients bucket by bucket while the backward still computes. What has to be sent after the last gradient
is there, and whatever the link cannot carry meanwhile, is waited for. With a small batch on each rank the backward is
short, and the same gradients have to be sent: two ranks are then no faster than one.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` measures what the backward waits for after it has computed, as DDP's own logger
counts it. Of the ranks the one counts that waits least: what others wait longer, they wait for a rank. Where ranks of
other hosts are not seen, no more counts than the time in which this host had something to send to them. ddpdoctor finds
it where that is more than four tenths of the step, 10 ms or more, in nearly all measured steps, and no rank waits for a
core three tenths of the time. `ddpdoctor bench --model train.py:build_model --batch train.py:example_batch` shows what
other settings give.

## How to mend it

A larger batch on each rank, or several batches a step within `model.no_sync()`: both send the same gradients less
often. Half the bytes: `bf16_compress_hook`. Else a faster link: `ddpdoctor bench` measures it.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch's torch/csrc/distributed/c10d/logger.cpp; PyTorch documentation,
"DDP Communication Hooks".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddpdoctor.check import (
    STARVED,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Profiled,
    Severity,
    StepsTimed,
    Training,
    Wrapped,
    human_size,
    watch,
)

from ..._findings.places import line_of_last
from ..._findings.profiled import step_seconds
from .._steps import STEADY, exposed
from ._links import busy_in_step, seen as seen_link, slow_links

AILMENT = Ailment("DDP905", Severity.NOTE)
MUCH = 0.4  # of a step
LEAST = 0.01  # seconds of a step
SMALL = 4 << 20  # bytes of gradients: less is no matter of bandwidth
BATCHES = 4  # of a step, for which is told what it gives
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare what the rank that waits least waits for with the step."""
    measured = training.by_rank(Profiled)
    if not measured or slow_links(training) or len(measured) < len(event.ranks) or training.world_size < 2:  # noqa: PLR2004 - one alone
        return
    waits = exposed(measured)
    if len(measured) < training.world_size:  # a late rank of another host is not seen: what this one sends is
        sends = max(busy_in_step(each) for each in measured.values())
        waits = [min(each, sends) for each in waits]
    size = max((sum(each.buckets) for each in measured.values()), default=0)
    if not waits or size < SMALL or any(each.synced > 1.5 for each in measured.values()):  # noqa: PLR2004 - once a step
        return
    total = step_seconds(measured)
    middle = statistics.median(waits)
    starved = any(each.starved > STARVED for each in event.ranks)
    steady = sum(each > MUCH / 2 * total for each in waits) >= STEADY * len(waits)
    if starved or not steady or middle < LEAST or middle / total < MUCH:
        return
    then = total - middle * (1 - 1 / BATCHES)
    yield Finding(
        f"after the backward has computed, it waits {1e3 * middle:.0f} ms for communication: {middle / total:.0%} of a "
        f"step of {1e3 * total:.0f} ms",
        tuple(
            Evidence(
                f"waits {statistics.median(each.exposed) / 1e6:.0f} ms; {statistics.median(each.hidden) / 1e6:.0f} ms "
                f"are hidden; {human_size(sum(each.buckets))} of gradients in {len(each.buckets)} buckets",
                "" if number else "most of it hidden",
                f"rank {rank}, {len(each.total)} steps",
            )
            for number, (rank, each) in enumerate(list(measured.items())[:SHOWN])
        )
        + tuple(seen_link(rank, each, each.links[0]) for rank, each in list(measured.items())[:1] if each.links),
        Fix(
            "send gradients less often: a larger batch on each rank, or several batches a step within no_sync() (with "
            f"{BATCHES} a batch takes about {1e3 * then:.0f} instead of {1e3 * total:.0f} ms, or less); "
            "what other settings give here:",
            command="ddpdoctor bench --model train.py:build_model --batch train.py:example_batch",
        ),
        line_of_last(Wrapped, training),
    )
