"""An IterableDataset, or a loader of one's own, yields the same samples on each rank.

## What happens

An IterableDataset has no sampler: it alone decides what it yields, and a DistributedSampler cannot be put on it. If
its `__iter__` does not look at the rank, each rank reads the same stream: N GPUs compute the same gradient, or at
best go through everything N times.

## How to be sure

Compare what the loader yields on each rank. ddpdoctor loads the first batches, with different random states on the
ranks, and compares digests of the samples. Streams count as the same when they are so from the first sample on, or
when both ended and hold the same samples in another order. Constants and labels, which repeat, prove nothing. Not
reported where Accelerate, Lightning and the like split later; a note where the factory's name says evaluation.

In a running training (`ddpdoctor run`) digests of the first batches that went whole into the model are compared
between the ranks; and, of a first pass that ran to its end, the number of samples and up to 64 of their checksums, the
least ones, whatever the order. Where each rank augments by itself, the variables of the generator (`__iter__`, in a
loader without workers) are compared: reported is one that is the same on all ranks with each of the first five batches,
and so is a piece of each batch, say the labels.

In a source (`ddpdoctor lint`): a DDP model learns from an IterableDataset of the file whose class knows of no rank (run
with two gloo ranks: both went through all ten samples); or from what an object of a class of the project gives, which
counts through the data by itself and is told no rank.

## How to mend it

In `__iter__`, take each `world_size`-th sample, beginning with the rank; with workers, each
`world_size * num_workers`-th. For Hugging Face datasets, `split_dataset_by_node(dataset, rank, world_size)`; for
webdataset, `nodesplitter=wds.split_by_node`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.utils.data.IterableDataset".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DDP,
    Ailment,
    DataSeen,
    EpochEnded,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    Record,
    Severity,
    StreamSeen,
    Training,
    given,
    likeness,
    lint,
    log_pattern,
    place,
    probe,
    watch,
)

from ..._scripts.source import LOADER
from .._lines import given_out
from .._passes import same_pass, told
from .._streams import first_batches, read_alike
from .._words import ROWS, SHOWN, STREAM, at, counted, shared_out, unless_a_framework_splits
from ._own_loader import gives_all, own_loaders
from ._split_by_worker import by_rank_and_worker

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam, Script

AILMENT = Ailment("DDP608", Severity.ERROR)


@probe
def by_what_it_yields(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the samples that the ranks got."""
    loader.several()
    streams = loader.streams()
    found = likeness(
        [each.digests() for each in streams],
        ended=all(each.complete for each in streams),
        repeats=max(1, loader.ranks[0].workers),
    )
    if found is None:
        return
    unless_a_framework_splits(loader)
    first = loader.ranks[0]
    noun = "batch" if streams[0].whole_batches else "sample"
    name = first.dataset if first.iterable else first.kind
    order = "in the same order" if found.same_order else "in another order"
    yield Finding(
        f"{name} yields the same {counted(found.samples, noun)} on each of {len(streams)} ranks, {order}",
        tuple(
            Evidence(
                f"{counted(len(each.samples), noun)}{'' if each.complete else ' and more'}, "
                f"the first {' '.join(each.digests()[:4])}",
                "other samples on each rank",
                f"rank {rank.rank}, digests",
            )
            for rank, each in zip(loader.ranks, streams, strict=True)
        ),
        ROWS if first.rows else by_rank_and_worker(loader.file, first.dataset, STREAM),
        at(loader),
        severity=Severity.NOTE if loader.for_evaluation else None,
    )


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the first batches of the ranks that share gradients, where each batch went whole into the model."""
    ranks = same_pass(event, training)
    if not ranks or not all(
        each.started.iterable and each.order.whole and not each.started.subgroups for each in ranks.values()
    ):
        return
    workers = max(1, next(iter(ranks.values())).started.workers)
    telling = event.digests[::workers]  # workers that do not split repeat each batch
    if len({each.order.digests for each in ranks.values()}) > 1 or not len(set(telling)) == len(telling) > 1:
        return
    data = next(iter(ranks.values())).data
    yield Finding(
        f"{next(iter(ranks.values())).started.dataset} yields the same batches on each of {len(ranks)} ranks",
        tuple(
            Evidence(
                f"the first {len(each.order.digests)} batches: {' '.join(each.order.digests[:4])}",
                "other batches on each rank",
                f"rank {rank}, digests, in the loop of {event.site}",
            )
            for rank, each in ranks.items()
        )[:SHOWN],
        shared_out(training, _mend(data, next(iter(ranks.values())).started.dataset)),
        place(given_out(data.reader) if data and data.reader else event.site),
    )


@watch(EpochEnded)
def in_another_order(event: EpochEnded, training: Training) -> Iterator[Finding]:
    """Compare the samples of a whole first pass, where each rank shuffles by itself."""
    ranks = same_pass(event, training)
    ended = {rank: each.ended for rank, each in ranks.items() if each.ended is not None and each.ended.complete}
    if len(ended) < len(ranks) or not all(
        each.started.iterable and not each.started.subgroups for each in ranks.values()
    ):
        return
    counts = {each.samples for each in ended.values()}
    if len(counts) > 1 or not ended or 0 in counts or len(event.least) < FEWEST:
        return
    first, *others = (set(each.least) for each in ended.values())
    started = next(iter(ranks.values())).started
    same_order = len({each.order.digests for each in ranks.values()}) == 1
    if same_order or any(len(first & each) < SAME * len(first) for each in others):
        return  # of the same order another facet speaks
    data = next(iter(ranks.values())).data
    yield Finding(
        f"{started.dataset} yields the same {event.samples} samples on each of {len(ranks)} ranks, in another order",
        tuple(
            Evidence(
                f"{each.samples} samples, the least checksums {told(each.least)}",
                "other samples on each rank",
                f"rank {rank}, in the loop of {event.site}",
            )
            for rank, each in ended.items()
        )[:SHOWN],
        shared_out(training, _mend(data, started.dataset)),
        place(given_out(data.reader) if data and data.reader else event.site),
    )


def _mend(data: DataSeen | None, kind: str) -> Fix:
    return by_rank_and_worker(data.reader.file, kind, STREAM) if data and data.reader else STREAM


@watch(StreamSeen)
def before_augmentation(event: StreamSeen, training: Training) -> Iterator[Finding]:
    """Compare what the generators of the ranks have read, where each augments it by itself."""
    ranks = first_batches(event, training) if event.batch == LAST else {}
    found = read_alike(ranks)
    shared = any(each.subgroups or each.owning_library for each in training.of(EpochStarted, iterable=True))
    if found is None or shared or event.site is None:
        return
    read, piece = found
    yield Finding(
        f"{len(ranks)} ranks read the same samples, and augment them differently: {read} in {event.site.function} is "
        "the same on all",
        tuple(
            Evidence(f"{read}: {' '.join(dict(each.held)[read] for each in batches)}; piece {piece} of the batches: "
                     f"{' '.join(each.pieces[piece] for each in batches)}", "other samples on each rank",
                     f"rank {rank}, digests with the first {LAST} batches")
            for rank, batches in ranks.items()
        )[:SHOWN],
        shared_out(training, STREAM),
        place(given_out(event.site)),
    )  # fmt: skip


LAST = 5  # batch
FEWEST = 16  # checksums: fewer tell nothing
SAME = 0.98


@lint
def of_a_stream(script: Script) -> Iterator[Finding]:
    """Look for a DDP model that learns from an IterableDataset which gives all its samples on each rank."""
    if not script.joins or script.frameworks or not script.calls(DDP):
        return
    for loader in script.calls(LOADER):
        data = given(loader, 0, "dataset")
        made = script.held(data) if isinstance(data, ast.Name) else data
        own = script.names_class(made.func) if isinstance(made, ast.Call) else None
        if own is None or not isinstance(made, ast.Call) or not gives_all(script, own, made):
            continue
        if script.all_ranks_reach(loader) and script.learned(loader) is not None:
            yield Finding(
                f"each rank goes through all of {own.name}: its __iter__ knows of no rank",
                (
                    script.seen(loader, "a data set that gives each rank its share"),
                    script.seen(own, "itertools.islice(samples, rank, None, world_size) in __iter__"),
                ),
                Fix(
                    "let __iter__ give each rank its share",
                    diff="+rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()\n"
                    "+yield from itertools.islice(samples, rank, None, size)",
                ),
                script.place(loader),
            )


@lint
def of_own_loader(script: Script) -> Iterator[Finding]:
    """Look for a DDP model that learns from an object which counts through the data by itself, on each rank alike."""
    if not script.joins or script.frameworks:
        return
    for made, own, asked in own_loaders(script):
        yield Finding(
            f"each rank is given the same batches: {own.name} counts through the data, and knows of no rank",
            (
                script.seen(made, f"{own.name}(..., rank, world_size), which begins at the rank's share"),
                script.seen(asked),
            ),
            Fix(
                "let each rank begin at its own share, and step over those of all",
                diff="-self.position = 0\n+self.position = rank * batch\n"
                "-self.position += batch\n+self.position += world_size * batch",
            ),
            script.place(made),
        )


@log_pattern(
    r"ValueError: (?:you need to add an explicit nodesplitter to your input pipeline for multi-node training"
    r"|input pipeline needs to be reconfigured for multinode training)"
)
def refused_by_webdataset(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """WebDataset asks how the shards are to be shared out, as soon as there is more than one rank."""
    yield Finding(
        "WebDataset is not told how the ranks share its shards",
        (record.proof(match, "a nodesplitter"),),
        Fix(
            "give each rank its own shards, as many on each; or draw shards anew on each rank (resampled=True)",
            diff="-wds.WebDataset(urls)\n+wds.WebDataset(urls, nodesplitter=wds.split_by_node)",
        ),
        record.place,
    )
