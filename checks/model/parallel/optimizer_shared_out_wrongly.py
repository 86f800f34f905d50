"""Each rank's optimizer steps its own part of the model, and a part does not reach the other ranks as it should.

## What happens

ZeRO's first stage by hand gives each rank's optimizer other parameters: gradients are reduced to the rank that steps
them, and the new weights are broadcast from it. Where the reduction goes to another rank, the owner steps with what its
own share of the data gives; where the broadcast is left out, or comes from another rank, the copies drift apart, or the
step is undone; a parameter that no rank's optimizer holds is never trained. Nothing fails.

## How to be sure

ddpdoctor compares in sampled steps, on all ranks, each parameter of the model and the gradient that the rank has
computed of it, whoever steps it, with the gradient that its owner's optimizer is given. Something is said where two
steps show it, and the other parts show that the ranks train one model: what their owners are given is the ranks' mean
or sum, or all weights are equal.

Where no optimizer of torch's steps (master copies in fp32, say), it looks at what is broadcast after each update, and
at parameters that stay as they were all the same.

Silent where there are groups of some ranks or communications within a model, and where a rank has no gradient of a
parameter that another one steps: experts, heads of several tasks and stages of pipelines belong to their rank.

## How to mend it

    for index, parameter in enumerate(model.parameters()):
        dist.reduce(parameter.grad, dst=owner[index])
    optimizer.step()
    for index, parameter in enumerate(model.parameters()):
        dist.broadcast(parameter.data, src=owner[index])

or let torch do it: `torch.distributed.optim.ZeroRedundancyOptimizer` with DistributedDataParallel.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13, gloo, two ranks. Source: PyTorch documentation,
`ZeroRedundancyOptimizer`; Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Exchange,
    Finding,
    Fix,
    OthersFingerprinted,
    Place,
    Severity,
    Training,
    WeightsFingerprinted,
    place,
    watch,
)

from ..._ledgers.updates import apart, complete, updates
from ..._ledgers.wordings import line_of, norms
from .._owners import Column, SharedOut, shared_out
from .._words import counted, listed

AILMENT = Ailment("DDP1541", Severity.ERROR)
SURE = 2
FEW = 0.5  # of the parameters: who trains a head alone leaves out most of a model
REDUCE = Fix(
    "reduce each gradient to the rank whose optimizer holds the parameter",
    diff="+for index, parameter in enumerate(model.parameters()):\n"
    "+    dist.reduce(parameter.grad, dst=owner[index])\n optimizer.step()",
)
BROADCAST = Fix(
    "broadcast each parameter from the rank whose optimizer holds it, after the step",
    diff=" optimizer.step()\n+for index, parameter in enumerate(model.parameters()):\n"
    "+    dist.broadcast(parameter.data, src=owner[index])",
)
HOLD = Fix(
    "give each parameter to one rank's optimizer",
    diff="+mine = [each for index, each in enumerate(model.parameters()) if index % world_size == rank]\n"
    " optimizer = torch.optim.Adam(mine)",
)


@watch(OthersFingerprinted)
def while_training(event: OthersFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare two steps after one another, on all ranks."""
    steps = shared_out(event, training, SURE)
    if len(steps) != SURE:
        return
    before, last = steps
    names = {each.name for each in _not_reduced(before)}
    if own := [each for each in _not_reduced(last) if each.name in names]:
        yield _finding(
            f"the rank that steps {_named(own)} is not given the other ranks' gradients of {_it(own)}",
            Evidence(f"gradient that backward left, {norms(own[0].line, own[0].local)}", "", _when(last)),
            own[0],
            last,
            REDUCE,
        )
        return
    names = {each.name for each in before.columns if not each.same}
    apart = [each for each in last.columns if each.owner is not None and not each.same and each.name in names]
    if apart and _train_one_model(before) and _train_one_model(last):
        yield _finding(
            f"{_named(apart)}: the new weights do not reach the ranks that do not step {_it(apart)}",
            Evidence(f"weights, {norms(apart[0].line, apart[0].values)}", "the same on all ranks", _when(last)),
            apart[0],
            last,
            BROADCAST,
        )
    elif _train_one_model(last):
        yield from _still(before, last)


@watch(WeightsFingerprinted)
def without_optimizer(event: WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for parameters that are handed round with the rest, and that no rank's own update changes."""
    if event.number != LATE:
        return
    steps, told = updates(training), [complete(number, training) for number in (2, 3, 5, LATE)]
    if not steps or not all(told):
        return
    rows = [[each.values for each in ranks.values()] for ranks in told]
    still = [at for at in range(len(event.names)) if all(row[0][at] == rows[0][0][at] for row in rows)]
    sent = [each for each in steps[-1].exchanges if (each.operation, each.what) == ("broadcast", "parameter")]
    if not still or len(still) == len(event.names) or sum(each.calls for each in sent) < len(event.names):
        return
    lines = [steps[-1].lines[at] for at in still]
    if any(apart(ranks) for ranks in told) or not all(line.known for line in lines):
        return
    names = listed([line.name for line in lines], 4)
    where = f"{sent[0].file}:{sent[0].line}"
    yield Finding(
        f"the updates of {counted(len(lines), 'parameter')} ({names}) are undone, or nobody makes them: the weights "
        "stay as they were",
        (
            Evidence("the same weights before the backwards 2, 3, 5 and 7, with a gradient on each rank",
                     "those that the rank which owns them has updated", "all ranks"),
            Evidence("all parameters are broadcast after each update", "each from the rank that has updated it", where),
        ),
        BROADCAST,
        line_of(sent[0]),
    )  # fmt: skip


LATE = 7  # backward


def _still(before: SharedOut, last: SharedOut) -> Iterator[Finding]:
    """Find what has a gradient, and stays as it was while the rest of the model moves."""
    past = {each.name: each.values for each in before.columns}
    still = [each for each in last.columns if each.same and each.values == past[each.name] and all(each.local)]
    steps = [each for each in still if each.owner is not None]
    nobodys = [each for each in still if each.owner is None]
    rates = [dict(group).get("lr") for step in last.ranks.values() for group in step.options]
    numbers = f"{before.sheet.number} and {last.sheet.number}"
    evidence = f"the same weights before step {numbers}, with a gradient on each rank"
    if len(still) == len(last.columns):
        return
    if steps and all(each.line.tells for each in steps) and not {"0", "0.0"} & set(rates):
        told = Evidence(evidence, f"those that rank {steps[0].owner} has stepped to", _when(last))
        message = f"the steps of {_named(steps)} are undone: the weights stay as they were"
        yield _finding(message, told, steps[0], last, BROADCAST)
    elif nobodys and len(nobodys) < FEW * len(last.columns):
        told = Evidence(evidence, "in the optimizer of one rank", _when(last))
        message = f"no rank's optimizer holds {_named(nobodys)}: the rest is shared out to the ranks"
        yield Finding(message, (told,), HOLD, place(last.held.site))


def _not_reduced(step: SharedOut) -> list[Column]:
    """Return what ranks step with other gradients than the ranks' mean, or a multiple of it."""
    if any(each.when == "in backward" for rank in step.ranks.values() for each in rank.exchanges):
        return []  # a hook has exchanged, maybe before it was looked at
    wrong = [each for each in step.telling if each.line.times_mean(0) is None]
    right = [each for each in step.telling if each.line.times_mean(0) is not None]
    own = all(each.owner is not None and each.line.times_own(each.owner) is not None for each in wrong)
    same = all(each.same for each in step.columns)
    by_rank = {each.owner for each in wrong}.isdisjoint(each.owner for each in right)
    elsewhere = bool(right) and by_rank and step.sheet.calls("reduce") > 0
    return wrong if (own and (same or right)) or elsewhere else []


def _train_one_model(step: SharedOut) -> bool:
    """Whether all that ranks step with is computed from all ranks' gradients."""
    telling = step.telling
    return bool(telling) and all(each.line.times_mean(0) is not None for each in telling)


def _finding(message: str, told: Evidence, column: Column, step: SharedOut, fix: Fix) -> Finding:
    """Return what was found, at the line that exchanges what the fix exchanges, if there is one."""
    when = "after backward" if fix is REDUCE else "before backward"
    owner = Evidence(f"rank {column.owner} alone steps {column.name}", "", str(step.held.site))
    given = norms(column.line, tuple(column.given if at == column.owner else None for at in range(len(column.local))))
    evidence = (told, Evidence(f"gradient that its step is given, {given}", "", _when(step)), owner)
    exchanges = [each for rank in step.ranks.values() for each in rank.exchanges if each.file and each.when == when]
    return Finding(message, evidence, fix, _place(exchanges, step))


def _place(exchanges: list[Exchange], step: SharedOut) -> Place:
    first = next((each for each in exchanges if each.what), next(iter(exchanges), None))
    return line_of(first) if first is not None else place(next(iter(step.ranks.values())).site)


def _named(columns: list[Column]) -> str:
    return f"{counted(len(columns), 'parameter')} ({listed([each.name for each in columns], 4)})"


def _it(columns: list[Column]) -> str:
    return "it" if len(columns) == 1 else "them"


def _when(step: SharedOut) -> str:
    return f"rank 0 to {len(step.ranks) - 1}, step {step.sheet.number}"
