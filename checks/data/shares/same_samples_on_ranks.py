"""All ranks compute the same gradients: they are given the same samples.

## What happens

N ranks are to work on N shares. Where each is given the same batches (a slice by hand that leaves the rank out, a
generator with the same seed on each rank that draws the batch, an environment of a reinforcement learner with the same
seed) the mean over the ranks is what each of them has computed: N ranks do the work of one, and the effective batch is
not N times as large.

## How to be sure

ddpdoctor takes fingerprints of each gradient right after backward in sampled steps, before it is exchanged. Here they
were equal on all ranks in the steps 1, 2, 3 and 10, of gradients that differ from step to step.

Silent where the data comes from a DataLoader and the model is wrapped (checks of loaders say what is wrong there),
where there are groups of some ranks or communications within a model, and where each step has the same batch, as
benchmarks have.

## How to mend it

Take each rank's share: `samples[rank::world_size]`, `DistributedSampler`, a seed that holds the rank for what is drawn.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    HOROVOD,
    Ailment,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    Severity,
    StepFingerprinted,
    Training,
    place,
    watch,
)

from ..._ledger import same_direction, sheets
from .._lines import seeded_alike
from .._passes import wrappings
from .._words import shared_out

if TYPE_CHECKING:
    from ..._sheets import Sheet

AILMENT = Ailment("DDP620", Severity.WARNING)
SURE = 10
SAME = 1e-5
MEND = Fix(
    "give each rank its share of the samples",
    diff="-batch = samples[step * size : (step + 1) * size]\n"
    "+mine = samples[dist.get_rank() :: dist.get_world_size()]\n"
    "+batch = mine[step * size : (step + 1) * size]",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what the ranks have computed in the first steps, before any exchange."""
    if event.number != SURE:
        return
    steps = sheets(event, training)
    if len(steps) < 4 or any(each.is_parallel_otherwise for each in steps) or not all(map(_same, steps)):  # noqa: PLR2004 - 1, 2, 3, 10
        return
    if all(same_direction(*pair) for pair in itertools.pairwise(steps)):
        return
    if training.framework is not HOROVOD and any(map(_exchanges_in_backward, steps)):
        return
    fed = training.of(OrderSeen, trained=True)
    if fed and (any(wrappings(training)) or any(each.indices for each in fed)):
        return  # what a loader gives is looked at itself
    last = steps[-1]
    line = max((each for each in last.lines if each.known), key=lambda each: each.size)
    told = ", ".join(f"{each[-1]:.7g} on rank {rank}" for rank, each in enumerate(line.local[:8]) if each)
    yield Finding(
        f"{len(last.ranks)} ranks compute the same gradients: each is given the same samples",
        (
            Evidence(f"fingerprint of the gradient of {line.name}, before any exchange: {told}", "another on each rank",
                     f"step {last.number}; the same in the steps 1, 2 and 3"),
        ),
        shared_out(training, MEND),
        place(seeded_alike(event.site) or event.site),
    )  # fmt: skip


def _exchanges_in_backward(step: Sheet) -> bool:
    """Whether hooks of the script's own may have exchanged gradients before they were looked at."""
    first = next(iter(step.ranks.values()))
    return not first.hooks and any(each.when == "in backward" for each in first.exchanges)


def _same(step: Sheet) -> bool:
    known = [line for line in step.lines if line.known]
    return bool(known) and all(line.computes_alike(SAME) for line in known)
