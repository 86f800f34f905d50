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
    ParametersHeld,
    Place,
    Severity,
    StepFingerprinted,
    StepSampled,
    Training,
    WeightsFingerprinted,
    Wrapped,
    place,
    watch,
)

from ...._ledgers.ledger import (
    REDUCERS,
    WRAPPERS,
    caller_of,
    calls_in,
    have_parted,
    last_steps,
    line_of,
    norms,
    seen,
    sheets,
)
from ...._ledgers.sheets import NEVER, Sheet
from ...._ledgers.updates import TOLD, apart, updates
from ._one_training import HALF, in_vain, meant, one_training, sends_after_backward

AILMENT = Ailment("DDP569", Severity.ERROR)
SURE = 30  # steps: who averages parameters by hand does so more often
EARLY = 3
DDP_FIX = Fix(
    "wrap the model before the optimizer is built",
    diff="+model = torch.nn.parallel.DistributedDataParallel(model)\n optimizer = torch.optim.SGD(model.parameters())",
)
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
    if len(steps) < EARLY or _is_wrapped(training) or not all(map(_never, steps)):
        return
    if _is_within_another(event, training, ended=ended):
        return
    last = steps[-1]
    if all(each.exchanged(ANOTHERS) for each in steps[-2:]):
        return  # a check of its own
    misplaced = all(each.exchanged("gradient") for each in steps[1:])
    if last.is_parallel_otherwise or (not misplaced and (not ended or _sends_as_much(steps))):
        return
    alike = any(line.replica for line in last.lines_that_tell)
    if misplaced:
        proof = _misplaced(last) if alike else None
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
        _message(last, misplaced=misplaced),
        (*seen(line, last), proof, *_beside(training), *_unreached(last, training, proof)),
        BY_HAND if by_hand else _wrap(training),
        _place(last, misplaced=misplaced, by_hand=by_hand),
    )


def _is_within_another(event: StepFingerprinted, training: Training, *, ended: bool) -> bool:
    """Whether a model is trained for a while within the training of another one, as meta-learning does.

    An optimizer that was built before has not stepped yet, or the same line builds one after the other for copies.
    """
    held = {each.optimizer: each for each in training.of(ParametersHeld, pid=event.pid)}
    if not ended and any(number not in held for number in range(event.optimizer)):
        return True
    own = held[event.optimizer]
    alike = [each for each in held.values() if (each.site, each.sizes) == (own.site, own.sizes)]
    begins = {each.optimizer: training.of(StepFingerprinted, pid=event.pid, optimizer=each.optimizer) for each in alike}
    ours = begins.pop(event.optimizer)
    return own.site is not None and any(
        told and (told[-1].time < ours[0].time or ours[-1].time < told[0].time) for told in begins.values()
    )


def _is_wrapped(training: Training) -> bool:
    """Whether an optimizer holds parameters of a wrapped model."""
    managed = any(number != NEVER for each in training.of(ParametersHeld) for number in each.managed)
    return managed or any(each.unmanaged for each in training.of(StepSampled))


def _beside(training: Training) -> list[Evidence]:
    """Return the model that is wrapped, and that no optimizer trains."""
    return [
        Evidence(f"{each.kind} is wrapped, and no optimizer holds what DDP averages of it", "", str(each.site))
        for each in training.of(Wrapped)[:1]
    ]


def _unreached(step: Sheet, training: Training, told: Evidence) -> list[Evidence]:
    """Return the line that would have wrapped a model, where the script has one and it is not told yet."""
    wraps = [] if training.of(Wrapped) else calls_in(step, WRAPPERS)[:1]
    return [
        Evidence("this line wraps a model, and no rank has come to it", "reached on each rank", str(line))
        for line in wraps
        if str(line) != told.source
    ]


def _wrap(training: Training) -> Fix:
    framework = training.framework
    if framework is None:
        return DDP_FIX
    return Fix(f"have {framework.name} wrap the model", diff=framework.model)


def _never(step: Sheet) -> bool:
    """Whether all gradients that tell anything are each rank's own."""
    telling = step.lines_that_tell
    apart = all(line.managed == NEVER and line.apart for line in telling)
    own = not step.exchanged("gradient") or all(line.own for line in telling)
    return apart and own and bool(telling)


def _sends_as_much(steps: list[Sheet]) -> bool:
    """Whether so much is sent that parameters can be averaged: neither all of it between backward and the step.

    Nor the same in each step, which keeps no weights equal where they have parted.
    """
    sent = steps[-1].sent - steps[0].sent
    return sent >= HALF * steps[-1].elements and not (sends_after_backward(steps, sent) or _sends_alike(steps, sent))


def _sends_alike(steps: list[Sheet], sent: int) -> bool:
    """Whether each step sends the same few numbers, no parameter among them, and nothing else is sent."""
    told = [next(iter(each.ranks.values())).exchanges for each in steps[1:]]
    numbers = {sum(each.elements for each in step) for step in told}
    known = any(each.what for step in told for each in step)
    few = max(numbers) < HALF * steps[-1].elements
    return not known and few and len(numbers) == 1 and numbers.pop() * (steps[-1].number - steps[0].number) == sent


def _misplaced(step: Sheet) -> Evidence:
    first = step.exchanged("gradient")[0]
    told = f"{first.operation}, {first.calls} times, {first.when} of step {step.number}"
    return Evidence(f"{told}: the gradients that the step is given stay as they were", "", f"{first.file}:{first.line}")


def _message(step: Sheet, *, misplaced: bool) -> str:
    if not misplaced:
        return f"the gradients of {len(step.ranks)} ranks are never exchanged: each trains a model of its own"
    when = step.exchanged("gradient")[0].when
    if when == "before backward":
        return (
            "gradients are reduced before backward, or after the step, and not in between: each rank steps with its own"
        )
    return "what is reduced are not the gradients that the optimizer steps with: each rank steps with its own"


def _place(step: Sheet, *, misplaced: bool, by_hand: bool) -> Place:
    if misplaced:
        first = step.exchanged("gradient")[0]
        return caller_of(first, step) if first.when == "before backward" else line_of(first)
    return place(next(iter(step.ranks.values())).site if by_hand else step.held.site)
