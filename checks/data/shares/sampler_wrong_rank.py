"""A DistributedSampler has the wrong rank or the wrong number of replicas.

## What happens

A DistributedSampler takes each `num_replicas`-th sample, beginning with its `rank`. If two ranks give it the same
rank they train on the same samples, and a share of the data is never seen; if `num_replicas` is not the world size,
the shares overlap or leave samples out. Usual causes: the local rank where the global one belongs (right on one node,
wrong on two), the number of GPUs of a node for the world size, constants left from a test.

## How to be sure

Print `sampler.num_replicas` and `sampler.rank` on each rank. ddpdoctor reads them from the loader that each rank
built and, where the sources speak of a local rank, builds it once more with each rank alone on its node.

In a running training (`ddpdoctor run`) the same two numbers are read in the loop, and compared with the place of the
rank among those that share gradients.

A sampler whose replicas divide the world evenly is right under tensor or pipeline parallelism: then it is a warning
that names both causes. What goes wrong on several nodes only is a note.

In a source (`ddpdoctor lint`): `num_replicas` is the world size, and `rank` comes from LOCAL_RANK.

In an evaluation of a running training it is said where all ranks have the sampler of one rank.

## How to mend it

Leave both arguments out; DistributedSampler takes them from the process group.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.utils.data.distributed.DistributedSampler".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evaluated,
    Evidence,
    Fact,
    Finding,
    Fix,
    NotRun,
    OrderSeen,
    Record,
    Severity,
    Table,
    Training,
    given,
    lint,
    log_pattern,
    place,
    probe,
    watch,
)

from ..._evaluation.evaluations import evaluation
from ..._scripts.doubts import one_node
from ..._scripts.source import SAMPLER
from .._passes import same_data, same_pass, told
from .._words import SHOWN, at, shown
from ._by_lightning import by_lightning

if TYPE_CHECKING:
    import ast

    from ddpdoctor.check import Around, Edit, LoaderExam, RankLoader, RankSampler, Script

AILMENT = Ailment("DDP603", Severity.ERROR)
MEND = Fix(
    "let the sampler take both from the process group",
    diff="-DistributedSampler(dataset, num_replicas=..., rank=...)\n+DistributedSampler(dataset)",
)


@probe
def by_its_own_word(loader: LoaderExam) -> Iterator[Finding]:
    """Compare what the samplers say with the ranks that they are on."""
    samplers = _samplers(loader.built())
    world = loader.world_size
    if all(sampler.replicas == world and sampler.rank == rank for rank, sampler in samplers):
        return
    replicas = {sampler.replicas for _, sampler in samplers}
    taken = Counter(sampler.rank for _, sampler in samplers)
    ambiguity = None
    if len(replicas) == 1 and 1 < (each := replicas.pop() or 0) < world and taken == _evenly(each, world):
        ambiguity = Ambiguity(
            ("the number of GPUs of a node, or a constant, for the world size", "tensor or pipeline parallelism"),
            "python -c 'from torch.utils.data import DistributedSampler; help(DistributedSampler)'",
        )
    wrong = [f"rank {rank} has {sampler.rank} of {sampler.replicas}" for rank, sampler in samplers]
    yield Finding(
        f"the {samplers[0][1].kind} is not that of its rank: in a world of {world}, {', '.join(wrong[:4])}",
        tuple(
            Evidence(
                f"num_replicas={sampler.replicas}, rank={sampler.rank}",
                f"num_replicas={world}, rank={rank}",
                f"rank {rank}'s sampler",
            )
            for rank, sampler in samplers
            if (sampler.replicas, sampler.rank) != (world, rank)
        ),
        MEND,
        at(loader, sampler=True),
        severity=Severity.WARNING if ambiguity else None,
        table=Table(
            ("rank", "sampler's rank", "num_replicas"),
            tuple((rank, _text(sampler.rank), _text(sampler.replicas)) for rank, sampler in samplers),
        ),
        ambiguity=ambiguity,
    )


@probe
def on_several_nodes(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the samplers' ranks with those that they have when each rank is alone on its node."""
    there = tuple(rank.sampler_rank_on_other_nodes for rank in loader.several())
    here = tuple(sampler.rank for _, sampler in _samplers(loader.ranks))
    if None in there or here != tuple(range(loader.world_size)) or there == here:
        return
    yield Finding(
        "the sampler's rank is the local rank: on several nodes, ranks of different nodes get the same samples",
        (
            Evidence(f"ranks {list(here)}", f"{list(here)}", "all ranks on one node"),
            Evidence(f"ranks {list(there)}", f"{list(here)}", "each rank on a node of its own, LOCAL_RANK=0"),
        ),
        MEND,
        at(loader, sampler=True),
        severity=Severity.NOTE,
    )


def _samplers(ranks: tuple[RankLoader, ...]) -> list[tuple[int, RankSampler]]:
    found = [(rank.rank, rank.sampler) for rank in ranks if rank.sampler is not None]
    if len(found) < len(ranks) or any(sampler.replicas is None or sampler.rank is None for _, sampler in found):
        raise NotRun("no sampler that splits by rank")
    return found


def _evenly(replicas: int, world: int) -> Counter[int | None]:
    return Counter(dict.fromkeys(range(replicas), world // replicas)) if world % replicas == 0 else Counter()


def _text(number: int | None) -> int | str:
    return "" if number is None else number


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare what the samplers say with the place of their rank among those that share gradients."""
    ranks = same_pass(event, training)
    samplers = {rank: each.sampler for rank, each in ranks.items() if each.sampler is not None}
    pairs = [(sampler.replicas, sampler.rank) for sampler in samplers.values()]
    if not ranks or len(pairs) < len(ranks) or any(None in pair for pair in pairs):
        return
    due = [(len(ranks), at) for at in range(len(ranks))]
    if all(pair in (mine, (training.world_size, rank)) for pair, mine, rank in zip(pairs, due, ranks, strict=True)):
        return
    replicas = pairs[0][0] or 0
    evenly = len({pair[0] for pair in pairs}) == 1 and Counter(pair[1] for pair in pairs) == _evenly(
        replicas, len(ranks)
    )
    same = same_data(ranks)
    shared = any(each.started.subgroups for each in ranks.values())
    if same is False or (evenly and (same is None or shared)):
        return  # the data is split before, or ranks share samples on purpose
    wrong = [f"rank {rank} has {pair[1]} of {pair[0]}" for pair, rank in zip(pairs, ranks, strict=True)]
    yield Finding(
        f"the {next(iter(samplers.values())).kind} is not that of its rank: of {len(ranks)} ranks, {told(wrong)}",
        tuple(
            Evidence(
                f"num_replicas={pair[0]}, rank={pair[1]}; the pass begins {shown(each.order.indices)}",
                f"num_replicas={mine[0]}, rank={mine[1]}",
                f"rank {rank}'s sampler",
            )
            for pair, mine, (rank, each) in zip(pairs, due, ranks.items(), strict=True)
            if pair != mine
        )[:SHOWN],
        MEND,
        place(next(iter(ranks.values())).started.drawn_at),
    )


@watch(Evaluated)
def while_evaluating(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for one share that all ranks evaluate, by the sampler of one rank."""
    ranks = evaluation(event, training)
    started = [each.started for each in ranks.values()]
    samplers = [each.sampler for each in started]
    if event.number or len(samplers) < 2:  # noqa: PLR2004 - nobody to compare with
        return
    if any(each is None or each.kind != "DistributedSampler" or each.replicas != len(ranks) for each in samplers):
        return
    given = {each.rank for each in samplers if each is not None}
    if len(given) > 1 or len({each.length for each in started}) > 1:
        return
    number = given.pop()
    yield Finding(
        f"{len(ranks)} ranks evaluate one share of {started[0].dataset}: the sampler of each is that of rank {number}",
        tuple(
            Evidence(f"num_replicas={len(ranks)}, rank={number}", f"rank={rank}", f"rank {rank}'s sampler")
            for rank in ranks
            if rank != number
        )[:SHOWN],
        MEND,
        place(started[0].drawn_at),
    )


@log_pattern(r"Invalid rank (-?\d+), rank should be in the interval \[0, (-?\d+)\]")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what the sampler says of the numbers that it was given."""
    yield Finding(
        f"a DistributedSampler is given rank {match[1]} of {int(match[2]) + 1}",
        (record.proof(match, f"a rank from 0 to {match[2]}, or another num_replicas"),),
        by_lightning(record) or MEND,
        record.place,
    )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a sampler that counts all ranks, and is given the local rank as its own."""
    for call in script.calls(SAMPLER):
        replicas, rank = given(call, 1, "num_replicas"), given(call, 2, "rank")
        if rank is None or script.fact(rank) is not Fact.LOCAL_RANK:
            continue
        if replicas is None or script.fact(replicas) is Fact.WORLD_SIZE:
            yield Finding(
                f"the sampler is given {script.code(rank)}, the local rank, as its rank: on two nodes, ranks 0 and "
                "LOCAL_WORLD_SIZE get the same share",
                (script.seen(rank, "rank=torch.distributed.get_rank()"),),
                Fix(
                    "leave out num_replicas and rank: the sampler takes them from the process group",
                    edits=_own(script, rank),
                ),
                script.place(call),
                ambiguity=one_node(script, project),
            )


def _own(script: Script, rank: ast.expr) -> tuple[Edit, ...]:
    """Return the edit that gives the sampler the global rank, where the file makes the group that knows it."""
    is_known = script.joins and script.has_module("torch")
    return (script.replaced(rank, "torch.distributed.get_rank()"),) if is_known else ()
