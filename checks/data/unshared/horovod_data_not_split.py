"""Horovod starts the ranks, and nothing tells the sampler how many there are.

## What happens

Horovod does not use torch's process group. `DistributedSampler(dataset)` asks that for the number of ranks and raises
"Default process group has not been initialized"; a loader without such a sampler goes through the whole data set on
each rank, and N GPUs do the work of one.

## How to be sure

In a source (`ddpdoctor lint`): the file steps a DistributedOptimizer of Horovod, and its DistributedSampler has no
`num_replicas`, where no file in reach initialises a process group; or the loop that trains goes through a loader
without a sampler, and no sampler, shard or split occurs in reach, nor the rank but in comparisons; or a sampler of the
same data set is made, and nothing but its epoch is ever told it.

## How to mend it

    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)

## Versions and sources

Seen with Horovod 0.28.1. Sources: torch/utils/data/distributed.py; Horovod documentation, "Horovod with PyTorch".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, given, is_open, lint

from ..._frameworks.horovod import OPTIMIZER, steps_of
from ..._scripts.source import LOADER, SAMPLER, iterated, target
from .._whole import escapes, is_sharded, trains
from ._unshared import lacks_sampler, told_its_epoch

if TYPE_CHECKING:
    import ast

    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP652", Severity.ERROR)
SPLITS = r"[Ss]ampler|random_split|IterableDataset|webdataset|petastorm|shard|hvd\.rank\(\)(?!\s*[=!<>])"
RIGHT = "DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())"


@lint
def of_a_sampler(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a sampler that asks a process group which is not there."""
    if not _trains_with_horovod(script) or project.says("init_process_group"):
        return
    for call in script.calls(SAMPLER):
        if not is_open(call) and given(call, 1, "num_replicas") is None:
            yield Finding(
                "the sampler asks torch for the number of ranks, and Horovod has not told torch",
                (script.seen(call, RIGHT),),
                Fix("tell it Horovod's size and rank", diff=f"-{script.code(call)}\n+{_completed(script.code(call))}"),
                script.place(call),
            )


@lint
def of_a_loader(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the loader of the loop that trains, which nothing splits."""
    if not _trains_with_horovod(script) or project.does(SPLITS) or project.unknown() - {"horovod", "horovod.torch"}:
        return
    for loader in script.calls(LOADER):
        if not is_sharded(loader) and _is_trained_from(script, loader):
            yield Finding(
                f"each rank goes through the whole data set: {target(script, loader)} has no sampler",
                (script.seen(loader, f"sampler={RIGHT}"),),
                Fix("give each rank its share", diff=f"+sampler = {RIGHT}"),
                script.place(loader),
            )


@lint
def of_both(script: Script) -> Iterator[Finding]:
    """Look for the loader of the loop that trains, beside a sampler of its data set that no loader is given."""
    if not _trains_with_horovod(script):
        return
    for call in script.calls(SAMPLER):
        name = target(script, call)
        if name is None or not script.is_bound_once(name) or "locals()" in script.text:
            continue
        if not all(told_its_epoch(script, each) for each in script.tree.read.get(name, ())):
            continue
        for loader in script.calls(LOADER):
            if lacks_sampler(script, loader, call) and _is_trained_from(script, loader):
                yield Finding(
                    f"each rank goes through the whole data set: {name} is given to no loader",
                    (script.seen(loader, f"sampler={name}"), script.seen(call)),
                    Fix("give the loader the sampler, and leave shuffling to it"),
                    script.place(loader),
                )


def _is_trained_from(script: Script, loader: ast.Call) -> bool:
    """Whether a loop trains with the batches of a loader, which goes nowhere else."""
    name = target(script, loader)
    if name is None or "." in name:
        return False
    loop = iterated(script, name, script.function(loader) or script.module)
    return loop is not None and trains(script, loop) and not escapes(script, name, loader)


def _completed(code: str) -> str:
    return f"{code[:-1].rstrip(', ')}, num_replicas=hvd.size(), rank=hvd.rank())"


def _trains_with_horovod(script: Script) -> bool:
    return any(steps_of(script, call) for call in script.calls(OPTIMIZER))
