"""DDP's buckets are far too small, or hold everything: the backward waits for communication that could be hidden.

## What happens

DDP sends gradients in buckets, of 25 MiB by default, the first of 1 MiB. Each bucket is an all_reduce of its own. With
`bucket_cap_mb=0.1` a model has hundreds of them, and what counts is the latency of each. With a `bucket_cap_mb` beyond
the model's size there is one, which is sent when the last gradient is computed: nothing of it is hidden.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` shows how many buckets there are, how large they are, and for how long the
backward waits for them when it has computed. ddpdoctor finds buckets of 256 KiB or less on average, four times as many
as by default, or one that holds nine tenths of 64 MiB or more and no single large parameter; in both cases where the
backward waits a fifth of the step or more, and 2 ms, in nearly all measured steps, on the rank that waits least. Where
ranks wait for a core three tenths of the time, small buckets are told by their number alone.

## How to mend it

Leave `bucket_cap_mb` out. `ddpdoctor bench --model train.py:build_model --batch train.py:example_batch` tries sizes.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's torch/nn/parallel/distributed.py, `bucket_cap_mb`.
"""

from __future__ import annotations

import linecache
import math
import statistics
from collections.abc import Iterator

from ddpdoctor.check import (
    STARVED,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
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

AILMENT = Ailment("DDP909", Severity.NOTE)
MIB = 1 << 20
TINY, FEWEST, TIMES = MIB // 4, 8, 4  # bytes of a bucket on average; buckets; how many times those of the default
LARGE, ALL = 64 * MIB, 0.9  # bytes of all gradients; of them in one bucket
SHARE, LEAST = 0.2, 0.002  # of a step; seconds of it
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare the buckets with those that DDP makes by default, and what the rank waits that waits least."""
    measured = training.complete(Profiled)
    waits = exposed(measured)
    if not waits:
        return
    busy = any(each.starved > STARVED for each in event.ranks)
    first = next(iter(measured.values()))
    total = step_seconds(measured)
    middle = statistics.median(waits)
    steady = sum(each > SHARE / 2 * total for each in waits) >= STEADY * len(waits)
    if not steady or middle < max(LEAST, SHARE * total) or not first.buckets:
        return
    size, count = sum(first.buckets), len(first.buckets)
    usual = 1 + math.ceil(max(0, size - MIB) / (25 * MIB))
    if count >= max(FEWEST, TIMES * usual) and size / count <= TINY:
        said = f"gradients travel in {count} buckets of {human_size(size // count)} on average"
        saved = middle * (1 - usual / count)
        promise = f"about {1e3 * (total - saved):.0f} instead of {1e3 * total:.0f} ms a step, or less"
    elif size >= LARGE and max(first.buckets) >= ALL * size and first.largest < max(first.buckets) / 2:
        said = f"{max(first.buckets) / size:.0%} of all gradients are in one bucket, sent when all are computed"
        hidden = min(middle * (1 - 1 / usual), total - middle)
        promise = f"{1e3 * (total - hidden):.0f} ms a step at best instead of {1e3 * total:.0f}"
    else:
        return
    if busy:  # the wait is no figure of a machine of their own; the buckets are
        if count < FEWEST:
            return
        promise = f"a step has {count - usual} exchanges less"
    yield Finding(
        f"{said}, {usual} by default: each of them is an exchange of its own, in each step"
        if busy
        else f"{said}, and the backward waits {1e3 * middle:.0f} ms for them when it has computed: "
        f"{middle / total:.0%} of a step of {1e3 * total:.0f} ms",
        tuple(
            Evidence(
                f"{human_size(size)} of gradients in {count} bucket{'' if count == 1 else 's'}; waits "
                f"{statistics.median(each.exposed) / 1e6:.0f} ms; "
                f"{statistics.median(each.hidden) / 1e6:.0f} ms are hidden",
                "" if number else f"{usual} bucket{'' if usual == 1 else 's'}, as by default",
                f"rank {rank}, {len(each.total)} steps",
            )
            for number, (rank, each) in enumerate(list(measured.items())[:SHOWN])
        ),
        _fix(line_of_last(Wrapped, training), promise),
        line_of_last(Wrapped, training),
    )


def _fix(where: Place, promise: str) -> Fix:
    """Return what to leave out, by the line that has it: that of the wrapper, or one that its options are kept in."""
    texts = dict(enumerate(linecache.getlines(where.file or ""), 1))
    named = [number for number, text in texts.items() if "bucket_cap_mb" in text.partition("#")[0]]
    if named and where.line not in named:
        return Fix(f"leave bucket_cap_mb out, at {where.file}:{named[0]}: {promise}")
    return Fix(
        f"leave bucket_cap_mb out: {promise}",
        diff="-model = DistributedDataParallel(model, bucket_cap_mb=...)\n+model = DistributedDataParallel(model)",
    )
