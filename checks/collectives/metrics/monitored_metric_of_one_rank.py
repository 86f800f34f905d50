"""Checkpoints are chosen, or the training is stopped, by a metric that each rank has for itself.

## What happens

With a sharded validation set each rank computes its metric from its share. Lightning's ModelCheckpoint and
EarlyStopping, and the transformers Trainer, decide by what their own rank has: the best model is the one that was best
on a fraction of the data, the number in the file's name is that of rank 0, and a training ends as soon as one rank's
share has not improved. torch's ReduceLROnPlateau lowers the learning rate of one rank and not of another, and the
replicas part; so does one that is given what `dist.reduce` left on the ranks that are not its destination. Nothing
raises; Lightning prints one warning ("It is recommended to use `self.log('val_loss', ..., sync_dist=True)`").

## How to be sure

Print the monitored value on every rank: they differ. In a running training (`ddpdoctor run`) the values of all ranks
are compared whenever a framework decides by them, and where Lightning's `trainer.test` or `trainer.validate` reports
them over a loader that is shared out; in a source (`ddpdoctor lint`) the monitored name is logged with
`rank_zero_only=True`, or is a loss or an accuracy that is computed from the batch and logged without `sync_dist=True`,
while the Trainer has a strategy, or devices, for several ranks; or ReduceLROnPlateau is told what a loop over the
loader of a DistributedSampler has added up, in a project that reduces nothing.

## How to mend it

    self.log("val_loss", loss, sync_dist=True)

With torchmetrics log the metric object itself, which is reduced over the ranks. In a Trainer of transformers leave
`evaluate` as it is, and compute metrics in `compute_metrics`, which gets the predictions of all ranks.

## Versions and sources

Sources: Lightning documentation, "LightningModule.log", sync_dist; its model_checkpoint.py and early_stopping.py;
transformers documentation, "Trainer". Seen with Lightning 2.6, transformers 5.23 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Monitored,
    Place,
    Role,
    Severity,
    Training,
    keyword,
    last_name,
    lint,
    log_pattern,
    logged_at,
    place,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from ._averaged import PLATEAU, REDUCED, TRAINER, fix_of
from ._monitored import callbacks, trained_in_ranks, unsynced
from ._plateau import own_steps

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Log, Record, Script

AILMENT = Ailment("DDP770", Severity.WARNING)
SHOWN = 8
APART = 1e-6  # relative: what is reduced is equal to the last bit
UNSYNCED = r"It is recommended to use `self\.log\('(?P<name>[^']+)', \.\.\., sync_dist=True\)`"
REPORTS = "Trainer."  # of Lightning: test, validate


@watch(Monitored)
def while_training(event: Monitored, training: Training) -> Iterator[Finding]:
    """Compare the values of all ranks, and name the first decision only."""
    ranks = training.complete(Monitored, name=event.name, by=event.by, step=event.step)
    values = {rank: each.value for rank, each in ranks.items()}
    known = [value for value in values.values() if value is not None]
    if not known or not _differ(values):
        return
    if any(_differ(each) for each in (*_earlier(event, training), *_beside(event, training))):
        return
    line = logged_at(event.file, event.name) if event.file else 0
    shown = ", ".join(
        f"{'none' if value is None else format(value, '.6g')} on rank {rank}"
        for rank, value in [*values.items()][:SHOWN]
    )
    if event.by == PLATEAU and not shares_gradients(event.pid, training):
        return  # models of their own, an ensemble say
    is_trainers = event.by == TRAINER
    what = f"{event.by} decides by {event.name}"
    if is_trainers or event.by.startswith(REPORTS):
        what = f"{'the ' if is_trainers else ''}{event.by} reports {event.name}"
    yield Finding(
        f"{what}, which each rank has from its own share of the data",
        (Evidence(f"{event.name}: {shown}", "the same on all ranks", f"after step {event.step}"),),
        fix_of(event, training),
        Place(file=event.file, line=line) if line else place(event.site),
    )


def _differ(values: dict[int, float | None]) -> bool:
    known = [value for value in values.values() if value is not None and value == value]  # noqa: PLR0124 - a NaN tells nothing
    if not known:
        return False
    if len([value for value in values.values() if value is not None]) < len(values):
        return True
    return max(known) - min(known) > APART * max(map(abs, known))


def _beside(event: Monitored, training: Training) -> Iterator[dict[int, float | None]]:
    """Yield the values of metrics that a ``Trainer.test`` reports with this one, before it."""
    if event.by.startswith(REPORTS):
        names = [*dict.fromkeys(each.name for each in training.of(Monitored, by=event.by, step=event.step))]
        for name in names[: names.index(event.name)]:
            ranks = training.complete(Monitored, name=name, by=event.by, step=event.step)
            yield {rank: each.value for rank, each in ranks.items()}


def _earlier(event: Monitored, training: Training) -> Iterator[dict[int, float | None]]:
    steps = {
        each.step for each in training.of(Monitored, name=event.name) if (each.step, each.by) != (event.step, event.by)
    }
    for step in steps:
        for by in {each.by for each in training.of(Monitored, name=event.name, step=step)}:
            if (step, by) != (event.step, event.by):
                ranks = training.complete(Monitored, name=event.name, by=by, step=step)
                yield {rank: each.value for rank, each in ranks.items()}


@log_pattern(UNSYNCED, role=Role.HARMLESS)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read Lightning's warning, of which there is one for each metric."""
    told = [found["name"] for _, found in log.find(UNSYNCED)]
    if told and told[0] == match["name"]:
        also = ", ".join(dict.fromkeys(each for each in told if each != match["name"]))
        yield Finding(
            f"{match['name']}{f', {also}' if also else ''}: logged without sync_dist, so that it is rank 0's alone, of "
            "its share of the data, that is printed, written and compared",
            (record.proof(match, "sync_dist=True, or a metric of torchmetrics"),),
            REDUCED,
            record.place,
            severity=Severity.NOTE,
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a name that is logged on rank zero alone, and that a callback of the same file monitors."""
    monitored = callbacks(script.tree)
    for call in script.nodes(ast.Call) if monitored else ():
        only = keyword(call, "rank_zero_only")
        match call:
            case ast.Call(func=ast.Attribute(attr="log"), args=[ast.Constant(value=str(logged)), *_]):
                if logged in monitored and isinstance(only, ast.Constant) and only.value is True:
                    yield Finding(
                        f"{logged} is logged on rank 0 alone, from its share of the data, and a callback decides by it",
                        (script.seen(call, "sync_dist=True"), script.seen(monitored[logged])),
                        Fix("average it over the ranks", diff=f'+self.log("{logged}", value, sync_dist=True)'),
                        script.place(call),
                    )


@lint
def not_averaged(script: Script, project: Around) -> Iterator[Finding]:
    """Look for what each rank has from its own batches, logged as it is, and monitored in the file or in its reach."""
    logged = [*unsynced(script)]
    if not logged or not trained_in_ranks(script, project):
        return
    trees = [script.tree, *(tree for _, tree in project.trees(r"\bmonitor\b"))]
    monitored = {name: call for tree in trees for name, call in callbacks(tree).items()}
    for call, name in logged:
        if name in monitored:
            decides = last_name(monitored[name].func)
            yield Finding(
                f"{name} is each rank's own, from its share of the data, and {decides} decides by it",
                (script.seen(call, "sync_dist=True"),),
                Fix("average it over the ranks", edits=(script.keyword_added(call, "sync_dist=True"),)),
                script.place(call),
            )


@lint
def of_plateau(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a ReduceLROnPlateau that is told what a rank has summed over its share."""
    for step, loop, sampler in own_steps(script, project):
        yield Finding(
            f"ReduceLROnPlateau decides by {script.code(step.args[0])}, which each rank has from its own share of the "
            "data: the learning rates of the ranks part",
            (script.seen(step, "the same number on all ranks"), script.seen(loop), sampler),
            REDUCED,
            script.place(step),
        )
