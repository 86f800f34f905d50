"""Each rank goes through the whole data set.

## What happens

A DataLoader knows nothing of ranks. Without a DistributedSampler, or another way to give each rank its share, N ranks
load the same samples: an epoch costs N times the work that it should, and the training goes through the data N times
as often as its number of epochs says. Where the ranks use the same seed the batches are even identical; then the
averaged gradient is that of one rank, and the other N - 1 add nothing.

## How to be sure

Print the first indices of an epoch, and how many there are, on each rank. ddpdoctor builds the loader on each rank,
reads an epoch's indices from its sampler, and fetches a few samples to see that an index means the same sample on all
ranks.

In a running training (`ddpdoctor run`) the passes of the ranks that share gradients are compared: nothing splits the
data, and the ranks draw the same order and use the batches whole, or each goes through all samples.

Not reported: data sets that are split themselves, samplers that draw with replacement (unless all ranks draw the
same), and what Accelerate, Lightning and the like split later. A loader that does not shuffle can be one for
evaluation on every rank: then it is a warning that names both causes; where the factory's name says evaluation, a
note.

In a source (`ddpdoctor lint`): a DistributedSampler stands in a variable that nothing reads, beside a DataLoader;
or the class itself does, or is given to a DataLoader in place of an object.

## How to mend it

Pass `sampler=DistributedSampler(dataset)` instead of `shuffle=True`, and call `sampler.set_epoch(epoch)` at the start
of each epoch.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.utils.data.distributed.DistributedSampler".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DDP,
    FSDP,
    FULLY_SHARD,
    SHARED,
    Ailment,
    Evidence,
    Finding,
    Fix,
    NotRun,
    OrderSeen,
    Severity,
    Training,
    given,
    is_open,
    lint,
    place,
    probe,
    watch,
)

from ..._scripts.source import LOADER, SAMPLER, target
from .._passes import RankPass, same_data, same_pass
from .._words import SHOWN, shown, unless_a_framework_splits
from ..shares.unlike._numberings import words_differ
from ._gone_through import MEND, are_identical, is_whole, mend, told
from ._unshared import (
    SEEDED,
    SHARED_OUT,
    classes_forgotten,
    classes_given,
    is_same_on_all_ranks,
    lacks_sampler,
    told_its_epoch,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Around, LoaderExam, Script

AILMENT = Ailment("DDP601", Severity.ERROR)
FEWEST = 4  # samples: equality of fewer is chance


@probe
def by_indices(loader: LoaderExam) -> Iterator[Finding]:
    """Compare what each rank goes through."""
    loader.several()
    ranks = loader.indexed()
    if any(rank.sampler is None or rank.sampler.replicas is not None for rank in ranks):
        return
    everything = set[object]().union(*(rank.samples() for rank in ranks))
    if len(everything) < max(FEWEST, len(ranks)):
        return
    identical = are_identical(ranks)
    if not identical and not all(is_whole(rank, len(everything)) for rank in ranks):
        return
    unless_a_framework_splits(loader)
    same = loader.same_data()
    if same is None:
        if loader.raised:
            raise NotRun(f"fetching a sample of the data set raised {loader.raised}")
        raise NotRun("the samples do not tell whether an index means the same on each rank")
    if same:
        yield told(loader, identical=identical)


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare what the ranks that share gradients go through, where no sampler splits it."""
    ranks = same_pass(event, training)
    samplers = [each.sampler for each in ranks.values() if each.sampler is not None and each.sampler.replicas is None]
    if not ranks or len(samplers) < len(ranks):
        return
    if any(each.started.subgroups for each in ranks.values()):
        return  # ranks may share samples on purpose
    everything = bool(same_data(ranks)) and all(map(_goes_through_all, ranks.values()))
    identical = len({each.order.indices for each in ranks.values()}) == 1
    if identical and all(each.splits for each in samplers):
        return  # a sampler that says that it splits: another check's
    if identical and not (all(each.order.whole for each in ranks.values()) and (everything or _same_batches(ranks))):
        return  # each rank may take its part of each batch
    if len(set(event.indices)) < FEWEST or not (identical or everything):
        return
    if not everything and words_differ(training):
        return  # other words with the same numbers
    first = next(iter(ranks.values())).started
    what = f"goes through all {first.length} samples of" if everything else "gets the same batches of"
    yield Finding(
        f"each of {len(ranks)} ranks {what} {first.dataset}" + (", in the same order" if identical else ""),
        tuple(
            Evidence(
                f"{sampler.kind} of {sampler.length} {'batches' if sampler.of_batches else 'samples'}: "
                f"{shown(each.order.indices)}",
                f"about {(each.started.length or 0) // len(ranks)} samples that no other rank has",
                f"rank {rank}'s sampler",
            )
            for (rank, each), sampler in zip(ranks.items(), samplers, strict=True)
        )[:SHOWN],
        mend(training, samplers[0]),
        place(next(iter(ranks.values())).started.made),
    )


def _goes_through_all(one: RankPass) -> bool:
    sampler, length = one.sampler, one.started.length
    if sampler is None or sampler.length is None or not length or sampler.replacement:
        return False
    return sampler.kind in {"RandomSampler", "SequentialSampler"} and sampler.length >= SHARED * length


def _same_batches(ranks: dict[int, RankPass]) -> bool:
    digests = [each.order.digests for each in ranks.values()]
    return len(set(digests)) == 1 and len(set(digests[0])) == len(digests[0]) > 1


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a DistributedSampler that is made and given to no loader: its variable is never read."""
    if script.frameworks:
        return
    for call in script.calls(SAMPLER):
        name = target(script, call)
        if name is None or "." in name or "locals()" in script.text:
            continue
        told = [told_its_epoch(script, each) for each in script.tree.read.get(name, ())]
        loaders = [each for each in script.calls(LOADER) if script.function(each) is script.function(call)]
        if told:  # of its epochs, in vain: the loader of the same data set has no sampler
            loaders = [each for each in loaders if lacks_sampler(script, each, call)] if all(told) else []
            loaders = loaders if script.calls(DDP) and script.is_bound_once(name) else []
        if loaders and (script.function(call) is not None or script.joins):
            yield Finding(
                f"{name} is given to no loader, so that each rank goes through the whole data set",
                (script.seen(call, f"DataLoader(..., sampler={name})"), script.seen(loaders[0])),
                Fix("give the loader of this data set its sampler, and leave shuffling to it"),
                script.place(call),
            )


@lint
def of_the_class(script: Script) -> Iterator[Finding]:
    """Look for the class DistributedSampler where one of its objects is meant."""
    if script.frameworks:
        return
    for loader, kind in classes_given(script):
        right = f"{script.code(kind)}(dataset)"
        yield Finding(
            f"the loader is given the class {script.code(kind)}, no object of it: a TypeError in its first pass",
            (script.seen(kind, right), script.seen(loader)),
            Fix("make one for the data set of the loader", diff=f"+DataLoader(..., sampler={right})"),
            script.place(loader),
        )
    for chosen, name, loader in classes_forgotten(script):
        yield Finding(
            f"{name} is given to no loader, so that each rank goes through the whole data set",
            (script.seen(chosen, f"DataLoader(..., sampler={name}(dataset))"), script.seen(loader)),
            Fix("give the loader of this data set its sampler, and leave shuffling to it"),
            script.place(chosen),
        )


OTHER_DIMENSIONS = r"parallelize_module|ensor_?[Pp]arallel|context_parallel|[Pp]ipeline|mesh_dim_names|[\"'][tc]p[\"']"
"""What says that some ranks are to have the same batches."""


@lint
def never_shared_out(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a training in DDP or FSDP whose loader has no sampler, and gives each rank the same batches."""
    wrap = _wrap(script, project) if script.calls(LOADER) and not script.frameworks else None
    if wrap is None or project.unknown() or project.does(SHARED_OUT_BY_A_LINE):
        return
    if not script.calls(DDP) and project.does(OTHER_DIMENSIONS):
        return
    for call in script.calls(LOADER):
        data, shuffle = given(call, 0, "dataset"), given(call, 2, "shuffle")
        if is_open(call) or data is None or given(call, 3, "sampler") or given(call, 4, "batch_sampler"):
            continue
        is_drawn = shuffle is not None and not (isinstance(shuffle, ast.Constant) and shuffle.value is False)
        if is_drawn and not SEEDED.search(script.text):
            continue
        if script.can_differ(data) or not is_same_on_all_ranks(script, data) or not script.all_ranks_reach(call):
            continue
        learned = script.learned(call)
        if learned is None or learned[1]:
            continue
        yield Finding(
            f"nothing shares out {script.code(data)}: each rank learns from the same batches",
            (
                script.seen(call, "DataLoader(..., sampler=DistributedSampler(dataset))"),
                wrap,
            ),
            MEND,
            script.place(call),
        )


SHARED_OUT_BY_A_LINE = rf"(?m)^(?![ \t]*(?:from|import)\b)[^\n]*?(?:{SHARED_OUT.pattern})"
"""The same words, where they are more than imported."""


def _wrap(script: Script, project: Around) -> Evidence | None:
    """Return where a model is wrapped, in the file or in reach of it."""
    own = script.calls(DDP, FSDP, FULLY_SHARD)
    if own:
        return script.seen(own[0])
    for path, tree in project.trees(r"DistributedDataParallel|FullyShardedDataParallel|fully_shard"):
        for call in tree.of(ast.Call):
            if script.names_in(tree, call.func) in {DDP, FSDP, FULLY_SHARD}:
                return Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}")
    return None
