"""All ranks compute the same gradients: they are given the same samples.

## What happens

N ranks are to work on N shares. Where each is given the same batches (a slice by hand that leaves the rank out, a
generator with the same seed on each rank that draws the batch, an environment of a reinforcement learner with the same
seed) the mean over the ranks is what each of them has computed: N ranks do the work of one, and the effective batch is
not N times as large.

## How to be sure

ddpdoctor takes fingerprints of each gradient right after backward in sampled steps, before it is exchanged. Here they
were equal on all ranks in the steps 1, 2, 3 and 10, of gradients that differ from step to step. Or the gradients
differ by masks or weights that each rank draws, and all ranks' models were given the same rows in the same order.

Silent where nothing brings the ranks' gradients or weights together, as where each rank trains a teacher or a probe of
its own on purpose, where a DataLoader draws indices, or a wrapped model is given its batches as they are (checks of
loaders say what is wrong there), where there are groups of some ranks or communications within a model, and where each
step has the same batch, as benchmarks have.

In a source (`ddpdoctor lint`): Lightning is told to put no sampler in (`use_distributed_sampler=False`), trains on
several devices, and nothing in the project shares out the data; or a wrapped model learns from slices that go from the
first sample to the last, in a file that gives no rank a share.

## How to mend it

Take each rank's share: `samples[rank::world_size]`, `DistributedSampler`, a seed that holds the rank for what is
drawn.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel".
"""

from __future__ import annotations

import ast
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
    RowsGiven,
    Severity,
    ShardingBegan,
    Site,
    StepFingerprinted,
    TensorParallel,
    Training,
    WeightsFingerprinted,
    keyword,
    lint,
    place,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from ..._frameworks.lightning import SAMPLER, TRAINERS, has_ranks
from ..._ledgers.ledger import built, of_all_ranks, same_direction, sheets
from ..._ledgers.sheets import EXCLUSIVE, NEVER, are_equal, multiple_of
from ..._ledgers.updates import compared, reduces
from ..._scripts.source import is_own
from .._cuts import cut_at, taken_at
from .._lines import seeded_alike
from .._passes import wrappings
from .._words import shared_out
from ._by_hand import same_cuts
from ._drawn import drawn_alike, drawn_by, stream_read

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

    from ..._ledgers.sheets import Sheet

AILMENT = Ailment("DDP620", Severity.WARNING)
SURE = 10
FEWEST = 16  # different rows
FORWARDS = 4  # that different rows come in
SAME = 1e-5
ONE_BATCH = 0.3  # gradients of one batch point the same way, step after step
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
    if _is_sharded(event, training):
        yield from _by_rows(event, training, wrapped=False)
    steps = sheets(event, training)
    if len(steps) < 4 or any(each.is_parallel_otherwise for each in steps):  # noqa: PLR2004 - 1, 2, 3, 10
        return
    if not all(map(_same, steps)):
        yield from _by_rows(event, training, wrapped=_has_wrapped(steps[-1]))
        return
    if all(same_direction(*pair) for pair in itertools.pairwise(steps)):
        return
    if _is_otherwise(steps, training):
        return
    last = steps[-1]
    line = max((each for each in last.lines if each.known), key=lambda each: each.size)
    told = ", ".join(f"{each[-1]:.7g} on rank {rank}" for rank, each in enumerate(line.local[:8]) if each)
    where, fix = stream_read(event, training) or _drawn_or_cut(event, training)
    yield Finding(
        f"{len(last.ranks)} ranks compute the same gradients: each is given the same samples",
        (
            Evidence(f"fingerprint of the gradient of {line.name}, before any exchange: {told}", "another on each rank",
                     f"step {last.number}; the same in the steps 1, 2 and 3"),
        ),
        shared_out(training, fix or MEND),
        place(where or event.site),
    )  # fmt: skip


@watch(WeightsFingerprinted)
def of_plain_tensors(event: WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare the gradients that the ranks have asked for, where all of them are reduced in each step."""
    steps = compared(event, training) if event.number == SURE and event.returned else []
    if len(steps) < 4 or not all(reduces(*pair) for pair in itertools.pairwise(steps)):  # noqa: PLR2004 - as above
        return
    tables = [[*zip(*(each.returned for each in ranks.values()), strict=True)] for ranks in steps]
    known = [at for at, each in enumerate(tables[-1]) if all(one and one[-1] for one in each)]
    if not known or not all(are_equal(table[at], SAME) for table in tables for at in known):
        return
    if all(
        multiple_of(one[at][0], other[at][0], ONE_BATCH) for one, other in itertools.pairwise(tables) for at in known
    ):
        return
    told = ", ".join(f"{each[-1]:.7g} on rank {rank}" for rank, each in enumerate(tables[-1][known[0]][:8]) if each)
    yield Finding(
        f"{len(tables[-1][0])} ranks compute the same gradients: each is given the same samples",
        (
            Evidence(f"fingerprint of the gradient of {event.names[known[0]]}, before any exchange: {told}",
                     "another on each rank", f"step {event.number}; the same in the steps before"),
        ),
        shared_out(training, MEND),
        place(drawn_alike(event.site) or event.site),
    )  # fmt: skip


def _drawn_or_cut(event: StepFingerprinted, training: Training) -> tuple[Site | None, Fix | None]:
    """Return the line that cuts one part for all ranks, else the one that seeds what draws samples, and its fix."""
    rows = training.of(RowsGiven, pid=event.pid)
    cut = cut_at(rows[-1].site) if rows and rows[-1].site is not None else None
    seeded = seeded_alike(event.site)
    return (cut, None) if cut is not None else (seeded, drawn_by(seeded))


def _is_sharded(event: StepFingerprinted, training: Training) -> bool:
    """Whether each rank holds a part of all parameters, and is to train on samples of its own."""
    held, ranks = built(event, training), of_all_ranks(event, training)
    if held is None or held.sizes or not held.shards or not training.of(ShardingBegan, pid=event.pid):
        return False
    return (
        bool(ranks)
        and not training.of(TensorParallel)
        and not any(each.subgroups or {name for name, *_ in each.sent} & EXCLUSIVE for each in ranks.values())
    )


def _by_rows(event: StepFingerprinted, training: Training, *, wrapped: bool) -> Iterator[Finding]:
    """Compare the rows that the model was given: the ranks may mask, weigh or label them differently."""
    ranks = training.complete(RowsGiven, number=event.number)
    told = next(iter(ranks.values()), None)
    if told is None or len({each.rows for each in ranks.values()}) > 1 or any(each.several for each in ranks.values()):
        return
    if wrapped != (told.model >= 0):
        return  # they were given to a model that another optimizer trains
    distinct = len(set(told.rows))
    if distinct < FEWEST or distinct * told.forwards < FORWARDS * len(told.rows):
        return  # one batch, or the whole, again and again
    if not all(shares_gradients(each.pid, training) for each in ranks.values()):
        return
    yield Finding(
        f"{len(ranks)} ranks train on the same samples: their models are given the same rows, in the same order",
        (
            Evidence(f"{len(told.rows)} rows in {told.forwards} forwards, {distinct} of them different, alike on all "
                     "ranks", "other rows on each rank", str(told.site)),
            Evidence("the gradients differ by what each rank makes of them", "", f"step {event.number}"),
        ),
        shared_out(training, MEND),
        place(taken_at(told.site, training, told.pid) if told.site else None),
    )  # fmt: skip


def _is_otherwise(steps: list[Sheet], training: Training) -> bool:
    """Whether equal gradients can have another cause, are meant, or are what a loader gives, which is looked at itself.

    A teacher or a probe each rank can train for itself: nothing brings its gradients or weights together.
    """
    if training.framework is not HOROVOD and any(map(_exchanges_in_backward, steps)):
        return True
    if training.framework is None and not _is_shared(steps):
        return True
    fed = training.of(OrderSeen, trained=True)
    return any(each.indices or (each.whole and any(wrappings(training))) for each in fed)


def _is_shared(steps: list[Sheet]) -> bool:
    """Whether DDP has some of the parameters, or the ranks have sent as many numbers as there are between the steps."""
    first, last = steps[0], steps[-1]
    return _has_wrapped(last) or last.sent - first.sent >= last.elements


def _has_wrapped(step: Sheet) -> bool:
    return bool(step.held.shards) or any(line.managed != NEVER for line in step.lines)


def _exchanges_in_backward(step: Sheet) -> bool:
    """Whether hooks of the script's own may have exchanged gradients before they were looked at."""
    first = next(iter(step.ranks.values()))
    return not first.hooks and any(each.when == "in backward" for each in first.exchanges)


def _same(step: Sheet) -> bool:
    known = [line for line in step.lines if line.known]
    return bool(known) and all(line.computes_alike(SAME) for line in known)


SHARED = (
    r"Sampler\b|(?<!distributed_)\bsampler\w*\s*=|rank\b|world_size|num_replicas|IterableDataset|webdataset|wds|shard"
    r"|split_dataset|nodesplitter|streaming|dali"
)
"""What occurs where a script shares out the data by itself."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a Trainer of Lightning that is to put no samplers in, where the script has none of its own."""
    for call in script.calls(*TRAINERS):
        off = next((given for name in SAMPLER if (given := keyword(call, name)) is not None), None)
        if not isinstance(off, ast.Constant) or off.value is not False or not has_ranks(script.tree, call):
            continue
        if project.does(SHARED) or not project.says(r"\bDataLoader\(") or project.unknown() - LIGHTNING:
            continue
        yield Finding(
            "each rank goes through the whole data set: Lightning is told to put no sampler in, and nothing else does",
            (script.seen(off, "True"), script.seen(call)),
            Fix("have Lightning share out the loaders", edits=(script.replaced(off, "True"),)),
            script.place(call),
        )


@lint
def cut_by_hand(script: Script) -> Iterator[Finding]:
    """Look for batches that every rank cuts from the first sample to the last."""
    for loop, cut in same_cuts(script) if script.runs_in_ranks and is_own(script) else ():
        yield Finding(
            f"every rank learns from the same batches of {script.code(cut.value)}: this file gives no rank its share",
            (
                script.seen(cut, f"{script.code(cut.value)} of this rank: [dist.get_rank() :: dist.get_world_size()]"),
                script.seen(loop),
            ),
            MEND,
            script.place(loop),
        )


LIGHTNING = {"lightning", "pytorch_lightning", "lightning.pytorch"}
