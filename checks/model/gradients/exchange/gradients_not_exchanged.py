"""The ranks train together, and their gradients are never exchanged.

## What happens

Nothing averages gradients but DistributedDataParallel, FSDP, or an `all_reduce` of the script's own between backward
and `optimizer.step()`. Where that is missing (the wrapping line is left out or stands in a branch not taken, the
reduction comes before backward, after the step, or works on a copy) each rank trains a model of its own on its share of
the data. Nothing fails, the loss falls, and one of the models is saved: it has seen 1/N of the data.

## How to be sure

ddpdoctor takes fingerprints of each parameter's gradient in sampled steps, on each rank: of what backward has left, and
of what the step is given. Here each step was given what its own rank has computed, and the ranks have computed
different gradients. It says so at once where the script does exchange gradients, at another time; else after
thirty steps, or when the training has ended, and only where the ranks have begun with the same weights and something
else shows one training: a sampler that shares one data set out, a broadcast of the weights, a loss that is summed up
over the ranks, a file that rank 0 alone writes, a line of the script that wraps or reduces and was not reached. Where
they have begun with different weights, a sampler must share the data out, and the script import or call what wraps, or
rank 0 alone save.

Silent where parameters, or something else of that size, are exchanged (local SGD, gossip, sharded models, pipelines),
unless all of it goes out between backward and each step and leaves the gradients as they were; where there are groups
of some ranks, and where the ranks have different options: these are trainings of their own.

Where no optimizer of torch's steps, and weights are broadcast after each update, it looks at the first updates: each
rank's gradients are then what its own backward has left, and nothing as large as they are went into a reduction.

## How to mend it

    model = DDP(model)

before the optimizer is built; or, by hand, after backward and before the step:

    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        parameter.grad /= dist.get_world_size()

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    ANOTHERS,
    Ailment,
    Ended,
    Evidence,
    Finding,
    Fix,
    Severity,
    StepFingerprinted,
    Training,
    WeightsFingerprinted,
    place,
    watch,
)

from ...._ledgers.calls import REDUCERS, WRAPPERS, calls_in
from ...._ledgers.ledger import have_parted, last_steps, sheets
from ...._ledgers.updates import TOLD, apart, updates
from ...._ledgers.wordings import norms, seen
from ._never_sent import (
    beside,
    is_within_another,
    is_wrapped,
    message,
    never,
    place_of,
    sends_as_much,
    unreached,
    when_sent,
    wrap,
)
from ._one_training import HALF, in_vain, meant, one_training

AILMENT = Ailment("DDP569", Severity.ERROR)
SURE = 30  # steps: who averages parameters by hand does so more often
EARLY = 3
BY_HAND = Fix(
    "average the gradients between backward and the step",
    diff=" loss.backward()\n+for parameter in model.parameters():\n+    dist.all_reduce(parameter.grad)\n"
    "+    parameter.grad /= dist.get_world_size()\n optimizer.step()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at all compared steps up to one that is late enough."""
    if event.number >= EARLY:
        yield from _judged(event, training, ended=event.number >= SURE)


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look at all steps that there were."""
    for event in last_steps(training, EARLY):
        yield from _judged(event, training, ended=True)


@watch(WeightsFingerprinted)
def without_optimizer(event: WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for weights that the ranks hand round, as each has updated some, and gradients that nobody reduces."""
    steps = updates(training) if event.number == TOLD[-1] else []
    if not steps or any(apart(each.ranks) for each in steps):
        return
    if not all(each.lines_that_tell and all(line.own for line in each.lines_that_tell) for each in steps):
        return
    if any(each.reduced >= HALF * each.elements for each in steps):
        return  # into other memory, from which the weights are updated
    round_ = [each for each in steps[-1].exchanges if each.what == "parameter" and each.operation == "broadcast"]
    if not round_:
        return
    line = max(steps[-1].lines_that_tell, key=lambda each: each.size)
    yield Finding(
        f"the weights are handed round, and the gradients of {len(steps[-1].ranks)} ranks are never exchanged: each "
        "parameter learns from one rank's samples",
        (
            Evidence(f"gradient that backward left, {norms(line, line.local)}", "", f"backward {event.number - 1}"),
            Evidence("no reduction between the backward and the update", "one of all gradients", "all ranks"),
            Evidence("the weights are broadcast after it", "", f"{round_[0].file}:{round_[0].line}"),
        ),
        BY_HAND,
        place(event.site),
    )


def _judged(event: StepFingerprinted, training: Training, *, ended: bool) -> Iterator[Finding]:
    steps = sheets(event, training)
    if len(steps) < EARLY or is_wrapped(training) or not all(map(never, steps)):
        return
    if is_within_another(event, training, ended=ended):
        return
    last = steps[-1]
    if all(each.exchanged(ANOTHERS) for each in steps[-2:]):
        return  # a check of its own
    misplaced = all(each.exchanged("gradient") for each in steps[1:])
    if last.is_parallel_otherwise or (not misplaced and (not ended or sends_as_much(steps))):
        return
    alike = any(line.replica for line in last.lines_that_tell)
    if misplaced:
        proof = when_sent(last) if alike else None
    else:
        proof = (in_vain(steps) or one_training(steps, training)) if alike else meant(steps, training)
    if alike and not have_parted(last):
        return
    if proof is None or len({each.options for each in last.ranks.values()}) > 1:
        return
    line = max(last.lines_that_tell, key=lambda each: each.size)
    reduces = bool(calls_in(last, REDUCERS, ".grad")) and not calls_in(last, WRAPPERS)
    by_hand = misplaced or reduces or (bool(last.calls("broadcast")) and training.framework is None)
    yield Finding(
        message(last, misplaced=misplaced),
        (*seen(line, last), proof, *beside(training), *unreached(last, training, proof)),
        BY_HAND if by_hand else wrap(training),
        place_of(last, misplaced=misplaced, by_hand=by_hand),
    )
