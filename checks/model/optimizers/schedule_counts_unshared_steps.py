"""The schedule of the learning rate counts the steps of one process, and comes to a part of its way only.

## What happens

With N ranks an epoch has an N-th of the steps that one process would make of it. A schedule whose length was counted
from the data set (`len(dataset) // batch_size`), or from a loader before it was shared out, is N times as long as the
training: a cosine ends at half of its way with two ranks, the learning rate stays high to the end, a warm-up takes N
times as much of the training. Nothing fails, and the model is worse than with one GPU.

## How to be sure

At the end of a run, ddpdoctor compares the length of each schedule with its steps: it is as long as all epochs of the
training with the batches of the whole data set, and has made as many steps as the ranks' shares have batches. Print
`scheduler.get_last_lr()` after the last step.

So is a number that the script counts itself, and that measures its steps: `step / total_steps` of a cosine or of a
weight that rises, `step < warmup_steps`. It is told as the training begins, where `total_steps` comes from
`len(dataset) // batch_size` of what a DistributedSampler shares out, and nothing in it speaks of the number of ranks.

## How to mend it

Count what this rank steps: `epochs * len(loader)`, of the loader that has the DistributedSampler. With Lightning, take
`self.trainer.estimated_stepping_batches` in configure_optimizers.

Silent where the training could have ended early (a `break` in its file), where passes were not complete, and where a
schedule goes on from a checkpoint.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Looked at are schedulers of torch that do not put others one
after another. Source: PyTorch documentation, torch.optim.lr_scheduler; torch.utils.data.distributed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    FABRIC,
    LIGHTNING,
    Ailment,
    EpochEnded,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    Place,
    ScheduleAtEnd,
    Severity,
    Training,
    last_name,
    tree_of,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from ..._scripts.own_files import own_files
from ..._scripts.whole_steps import whole_steps

AILMENT = Ailment("DDP1554", Severity.WARNING)
MENDS = {
    "": "+steps = epochs * len(loader)  # with its DistributedSampler",
    LIGHTNING.name: "+steps = self.trainer.estimated_stepping_batches   # of one rank, in configure_optimizers",
    FABRIC.name: "+steps = epochs * len(loader)  # after fabric.setup_dataloaders",
}
"""What to count instead, with no framework and with those that leave it to the script how often a schedule steps."""


@watch(EpochStarted)
def counted_by_hand(event: EpochStarted, training: Training) -> Iterator[Finding]:
    """Look for a number by which the script measures its steps, once it trains on a rank's share."""
    sampler = event.sampler
    shared = sampler is not None and sampler.replicas == training.world_size > 1
    if event.rank != 0 or event.number > 1 or not event.training or not shared or event.site is None:
        return
    if training.framework is not None or not shares_gradients(event.pid, training):
        return
    for file in own_files(event.site.file):
        for each in whole_steps(file, event.batch_size):
            size = f" in batches of {event.batch_size}" if event.batch_size else ""
            yield Finding(
                f"{each.text} counts the batches of all samples, and {each.used} measures this rank's steps by it: "
                f"each of {training.world_size} ranks makes one in {training.world_size} of them",
                (
                    Evidence(each.text, "the batches of a rank's share", f"{file}:{each.line}"),
                    Evidence(each.used, "", f"{file}:{each.used_line}"),
                    Evidence(f"{sampler.length if sampler else ''} of {event.length} samples{size}", "", "rank 0"),
                ),
                Fix(
                    "count the batches of this rank's share: those of its loader, or divide by the number of ranks",
                    diff=f"-{each.text}\n+({each.text}) // dist.get_world_size()",
                ),
                Place(file=file, line=each.line),
            )


@watch(ScheduleAtEnd)
def while_training(event: ScheduleAtEnd, training: Training) -> Iterator[Finding]:
    """Compare the length of a schedule with the steps of the one loader that trained, on rank 0."""
    framework = training.framework
    if event.rank != 0 or event.began or (framework is not None and framework.name not in MENDS):
        return
    ended = [each for each in training.of(EpochEnded, rank=0) if each.trained]
    passes = [each for each in training.of(EpochStarted, rank=0) if each.number in {one.number for one in ended}]
    shared = _shared(ended, passes, training.world_size, of_trainer=event.planned > 0)
    if shared is None or event.made != (event.planned or sum(each.batches for each in ended)):
        return
    samples, size = shared
    epochs = len(ended) if not event.planned else len({each.number for each in training.of(EpochStarted, rank=0)
                                                      if each.loader == ended[0].loader})  # fmt: skip
    if event.made != epochs * ended[0].batches and event.planned:
        return
    whole = {epochs * batches for batches in (samples // size, -(-samples // size))}
    length = next((each for each in event.lengths if each in whole and each > event.made), None)
    sites = [each.site.file for each in (event, passes[0]) if each.site]
    files = list(dict.fromkeys(each for file in sites for each in own_files(file))) if framework else sites
    if length is None or (any(tree_of(file).of(ast.Break) for file in files) and not event.planned):
        return
    if _counts_the_loader(passes[0]) or any(next(whole_steps(each, size), None) for each in files):
        return
    file, line = _built(event, files)
    share = ended[0].batches
    yield Finding(
        f"the schedule {event.kind} is made for {length} steps, and the training has {event.made}: it counts "
        "the batches of the whole data set, of which each rank has its share",
        (
            Evidence(f"{event.kind} of {length} steps: {epochs} epochs of {length // epochs} batches",
                     f"{event.made} steps: {epochs} epochs of {share} batches", "the end of the training"),
            Evidence(f"{samples} samples in batches of {size} on each of {training.world_size} ranks", "",
                     "the loader that trains"),
        ),
        Fix(
            "count the batches of the loader that this rank iterates",
            diff="-steps = epochs * (len(dataset) // batch_size)\n" + MENDS[framework.name if framework else ""],
        ),
        Place(file=file or None, line=line or None),
    )  # fmt: skip


def _shared(
    ended: list[EpochEnded], passes: list[EpochStarted], ranks: int, *, of_trainer: bool
) -> tuple[int, int] | None:
    """Return the samples and the batch size of the one loader that has trained, if it has a rank's share.

    A Trainer asks for no batch behind the last one, so that its passes do not come to their end.
    """
    loaders = {each.loader for each in ended}
    ours = [each for each in passes if each.loader in loaders]
    if len(loaders) != 1 or not ours or not all(each.complete or of_trainer for each in ended):
        return None
    first = ours[0]
    if first.length is None or not first.batch_size or first.sampler is None or first.sampler.length is None:
        return None
    is_share = ranks > 1 and abs(first.sampler.length * ranks - first.length) < ranks
    return (first.length, first.batch_size) if is_share else None


def _counts_the_loader(started: EpochStarted) -> bool:
    """Whether all lengths that the file asks for are those of the loader that is iterated: it is long by intent."""
    site = started.site
    nodes = tree_of(site.file).nodes if site else []
    iterated = {
        ast.unparse(each.iter) for each in nodes if isinstance(each, ast.For) and site and each.lineno == site.line
    }
    asked = {ast.unparse(each.args[0]) for each in nodes
             if isinstance(each, ast.Call) and ast.unparse(each.func) == "len" and each.args}  # fmt: skip
    return bool(asked) and asked <= iterated


def _built(event: ScheduleAtEnd, files: list[str]) -> tuple[str, int]:
    """Return the line that makes the schedule, where there is one such line in these files; else its first step."""
    found = {
        (file, node.lineno)
        for file in files
        for node in tree_of(file).of(ast.Call)
        if last_name(node.func) == event.kind
    }
    return found.pop() if len(found) == 1 else (event.site.file, event.site.line) if event.site else ("", 0)
