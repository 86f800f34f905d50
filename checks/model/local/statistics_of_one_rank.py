"""Statistics that samples are computed with are each rank's own.

## What happens

A normaliser of observations, the center that a teacher's output is shifted by, the centers of clusters, moments of a
data set: an object keeps them, and each sample meets them. DDP gives all ranks the same parameters and buffers of the
model that it wraps. What stands beside it, as an attribute or in a criterion, each rank computes from its own share of
the samples: the same sample means something else on every rank, and what rank 0 saves fits rank 0 alone. Nothing
fails, for the weights stay equal.

## How to be sure

ddpdoctor compares what the functions that train hold, before the batches of several compared steps: tensors that are
different on the ranks, and are updated from what they were by a mean, a sum or the like of samples; those that are
named like a statistic also where they stay as they are. In the source, something is computed with them that is not
kept beside them.

`ddpdoctor check --model` builds the model on each rank and compares the tensors that its modules, and objects of
theirs, hold beside parameters and buffers, as a random projection or the matrix of Fourier features. Told are those
that the source computes something with. Where they are equal on ranks that are seeded alike, it depends on how the
training seeds: a note where a file beside the model's seeds anything.

So are variables of these functions that are named like a statistic, stay as they are, and are a mean, a deviation or
the like of something; and the weights of classes that a function such as `cross_entropy` is called with. What a module
holds, as `CrossEntropyLoss`, is told by frozen-module-differs.

## How to mend it

Let all ranks count: add up sums and numbers of samples before the statistic is updated.

    total = torch.stack([batch.sum(0), (batch * batch).sum(0)])
    dist.all_reduce(total)

Statistics that are computed once are rank 0's: `dist.broadcast(statistic, src=0)`, or computed from the whole data
set.

What never changes can be a buffer, `self.register_buffer("proj", proj)`: DDP gives rank 0's to all, and the state dict
keeps it.

Silent where the ranks do not train one model, or begin with weights of their own beside it (a head for each client,
say: its statistics are the client's, too), where a statistic is that of the batch alone (as in instance
normalisation), and of the running statistics of batch normalisation. Of buffers that rank 0 gives to all ranks at each
forward, matrices are looked at (the codes of a quantiser, say): what the other ranks have counted is lost there.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel";
DINO (facebookresearch/dino, main_dino.py): `update_center` adds up over the ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Place,
    Severity,
    Statistic,
    StepFingerprinted,
    Training,
    probe,
    spans,
    tree_of,
    watch,
)

from ..._ledgers.ledger import of_all_ranks
from .._alike import earlier, weights_apart, without_parallelism
from .._words import listed
from ._beside import beside_the_model
from ._class_weights import weights_of_losses
from ._data_apart import shares_other_data
from ._held import Attribute
from ._rows import Found, made, rows_of, updated, weigh
from ._variables import from_all_ranks, joins, made_of_many

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP1524", Severity.WARNING)
SURE = 3  # steps


@probe
def as_built(model: ModelExam) -> Iterator[Finding]:
    """Look for tensors that samples meet, and that the ranks build apart, beside what DDP knows."""
    if len(model.ranks) == 1:
        raise NotRun("needs 2 ranks, was run with 1 (--nproc)")
    yield from beside_the_model(model)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for statistics that went apart, or were so from the start."""
    ranks = without_parallelism(event, training)
    if not ranks or _begin_with_own_weights(event, training):
        return
    past = [rows_of(each) for each in earlier(event, training)]
    steps = [rows_of(ranks), *past][:SURE]
    if len(steps) < SURE:
        return  # too early
    before = updated(past[:SURE], event) | made(past[:SURE]) if len(past) >= SURE else {}
    found = {path: each for path, each in (updated(steps, event) | made(steps)).items() if path not in before}
    if found and not shares_other_data(training):
        yield _finding(found, event)
    if len(past) < SURE or not weigh(past[:SURE]):
        yield from weights_of_losses(weigh(steps), event)


def _begin_with_own_weights(event: StepFingerprinted, training: Training) -> bool:
    """Whether an optimizer began with weights that are not the same on all ranks."""
    begun = training.of(StepFingerprinted, pid=event.pid, number=1)
    return any(weights_apart(of_all_ranks(each, training)) for each in begun)


def _finding(found: Found, event: StepFingerprinted) -> Finding:
    paths = sorted(found)
    row, updated = next((each for each in found.values() if each[1]), found[paths[0]])
    how = "updated by each rank from its own samples" if updated else "not computed from the same samples"
    how += ", and DDP gives all ranks rank 0's at the next forward" if row[0].broadcast else ""
    steps = (event.site.file, event.site.line) if event.site else ("", 0)
    attribute = Attribute(row[0].path, row[0].kind, (row[0].file, steps[0]))
    made = attribute.computed() if row[0].kind else made_of_many(row[0].file, row[0].path)
    file, line = updated or made or steps
    whose = f"{row[0].kind} keeps statistics" if row[0].kind else "samples are computed with statistics"
    return Finding(
        f"{whose} that are not the same on all ranks, {how}: {listed(paths, 4)}",
        (
            Evidence(_told(row), "the same on all ranks", f"before step {event.number}"),
            Evidence(f"different in the last {SURE} compared steps", "", "all ranks"),
        ),
        Fix(
            "update it with the samples of all ranks" if updated else "compute it from all samples, or give rank 0's",
            diff=_summed_up(*updated)
            if updated
            else (made and from_all_ranks(*made)) or "\n".join(f"+dist.broadcast({each}, src=0)" for each in paths),
        ),
        Place(file=file or None, line=line or None),
    )


def _summed_up(file: str, line: int) -> str:
    """Return how what a method counts comes from the samples of all ranks, in its own names.

    One that returns something, as forward, goes on with its own samples: there the sums are added up.
    """
    around = [each for each in tree_of(file).of(ast.FunctionDef) if spans(each, line)]
    returns = any(isinstance(each, ast.Return) and each.value for each in ast.walk(around[-1])) if around else True
    given = [] if returns or around[-1].name == "__init__" else around[-1].args.args[1:]
    if not given:
        return "+dist.all_reduce(sums)  # and the number of samples, before they are divided"
    said, name = ast.unparse(around[-1]), given[0].arg
    return (
        f" {said.partition(chr(10))[0] if not around[-1].decorator_list else f'def {around[-1].name}(...):'}\n"
        "+    parts = [None] * dist.get_world_size()\n"
        f"+    dist.all_gather_object(parts, {name})\n+    {name} = {joins(said)}(parts)"
    )


def _told(row: list[Statistic]) -> str:
    """Return the norms of the ranks; where these are alike, another number in which the ranks differ."""
    prints = [each.print for each in row if each.print]
    at = max(range(len(prints[0])), key=lambda at: max(each[at] for each in prints) - min(each[at] for each in prints))
    norms = {f"{each[-1]:.4g}" for each in prints}
    what, at = ("norm", -1) if len(norms) > 1 else ("random projection", at)
    told = ", ".join(f"{each.print[at]:.4g} on rank {rank}" for rank, each in enumerate(row[:8]) if each.print)
    return f"the {what} of {row[0].path}: {told}"
