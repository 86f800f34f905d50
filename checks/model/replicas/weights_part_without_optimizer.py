"""A training without an optimizer of torch's, and the ranks' copies of the model are not the same any more.

## What happens

A script can write its own update (`p.add_(p.grad, alpha=-lr)` under `no_grad`). What DistributedDataParallel promises
holds there too: all ranks begin with the same weights and are given the same gradients, so that each computes the same
update. A forward that goes past the wrapper, a rate that each rank lowers by its own loss, gradients that nobody
exchanges: the copies part, without an error, and the file that is saved has those of one rank.

## How to be sure

No optimizer of torch's was built. ddpdoctor takes fingerprints of the weights when a backward begins, or when
gradients of plain tensors are asked for (`torch.autograd.grad`, `torch.func.grad`), at the 1st, 2nd, 3rd, 5th, 7th,
10th, 20th ... one, on all ranks. They were equal in the first, and differ in a later one. Of a model
that nobody wraps it is said after thirty backwards or at the end, where the copies were never equal again, and
gradients or metrics go through `all_reduce`, a sampler shares one data set out, or the weights were broadcast.

Silent where weights are averaged now and then (local SGD), where there are groups of some ranks, communications within
a model, or a communication hook.

## How to mend it

    outputs = ddp_model(inputs)   # not ddp_model.module(inputs)
    loss_fn(outputs, targets).backward()
    with torch.no_grad():
        for parameter in ddp_model.parameters():
            parameter.add_(parameter.grad, alpha=-lr)   # lr is the same on all ranks

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13, gloo, two ranks. Source: PyTorch documentation, "Distributed Data
Parallel", internal design.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Ended,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    Training,
    WeightsFingerprinted,
    place,
    watch,
)

from ..._ledgers.sheets import NEVER
from ..._ledgers.updates import HALF, Ranks, apart, calls, compared, number_of, reduces, reduction_of, sends, sent
from .._words import counted, listed

AILMENT = Ailment("DDP1542", Severity.ERROR)
LEAST = 3  # compared backwards
SURE = 30
WRAPPED = Fix(
    "call the wrapped model, and update with the same numbers on every rank",
    diff="-outputs = model.module(inputs)\n+outputs = model(inputs)",
)
BY_HAND = Fix(
    "average the gradients between backward and the update",
    diff=" loss.backward()\n+for parameter in model.parameters():\n+    dist.all_reduce(parameter.grad)\n"
    "+    parameter.grad /= dist.get_world_size()",
)
FUNCTIONAL = Fix(
    "average the gradients of all weights, and update with what all_reduce has left in them",
    diff=" grads = torch.func.grad(loss_fn)(params, batch)\n+for grad in grads.values():\n"
    "+    dist.all_reduce(grad)\n+    grad /= dist.get_world_size()",
)


@watch(WeightsFingerprinted)
def while_training(event: WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare the weights with those of the backwards before."""
    yield from _judged(event, training, ended=event.number >= SURE)


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look at the last backward that was compared."""
    for event in training.of(WeightsFingerprinted)[-1:]:
        yield from _judged(event, training, ended=True)


def _judged(event: WeightsFingerprinted, training: Training, *, ended: bool) -> Iterator[Finding]:
    steps = compared(event, training)
    if len(steps) < LEAST:
        return
    differ = apart(steps[-1])
    if apart(steps[0]) or not differ:
        return
    wrapped = [at for at in differ if event.managed[at] != NEVER]
    if wrapped and not sends(steps[0], steps[-1]):
        yield _finding(event, steps, wrapped, _forwards(steps[-1]), WRAPPED)
        return
    alone = ended and all(each == NEVER for each in event.managed) and all(map(apart, steps[1:]))
    proof = (_reduced(steps) or _one_training(steps, training)) if alone else None
    if proof is not None:
        yield _finding(event, steps, differ, proof, FUNCTIONAL if event.returned else BY_HAND)


def _forwards(ranks: Ranks) -> Evidence:
    told = ", ".join(f"{each.forwards} on rank {rank}" for rank, each in ranks.items())
    return Evidence(f"forwards through the wrapper so far: {told}", f"one for each of {number_of(ranks)} backwards", "")


def _reduced(steps: list[Ranks]) -> Evidence | None:
    """Return what gradients of plain tensors are given to, after each of the first calls that ask for them."""
    first, last = (reduction_of([each]) for each in steps[1:LEAST])
    if first is None or last is None or not next(iter(steps[-1].values())).returned:
        return None
    whole = sum(next(iter(steps[-1].values())).sizes)
    told = f"{last.operation} is given gradients of {last.elements} elements"
    return Evidence(told, f"those of all {whole}, and used after it", f"{last.file}:{last.line}")


def _one_training(steps: list[Ranks], training: Training) -> Evidence | None:
    """Find what shows that ranks that nobody keeps equal are to train one model."""
    first, last = steps[0], steps[-1]
    if sends(first, last):
        if not all(reduces(*pair) for pair in pairwise(steps)):
            return None  # weights are averaged now and then
        told = f"all_reduce was called {calls(last, 'all_reduce')} times, in each step, and the weights part"
        return Evidence(told, "", "all ranks")
    if calls(first, "broadcast") and sent(next(iter(first.values()))) >= HALF * sum(next(iter(first.values())).sizes):
        return Evidence("the weights were broadcast before the first backward", "", "all ranks")
    if calls(last, "all_reduce") > calls(first, "all_reduce"):
        return Evidence(f"all_reduce was called {calls(last, 'all_reduce')} times, with no gradients", "", "all ranks")
    for passed in training.of(EpochStarted):
        if passed.sampler is not None and passed.sampler.replicas == len(last):
            told = f"{passed.sampler.kind} shares {passed.dataset} out to {len(last)} ranks"
            return Evidence(told, "", str(passed.site))
    return None


def _finding(event: WeightsFingerprinted, steps: list[Ranks], at: list[int], told: Evidence, fix: Fix) -> Finding:
    names, last = [event.names[each] for each in at], steps[-1]
    norms = ", ".join(
        f"{(each.values[at[0]] or (0.0,))[-1]:.6g} on rank {rank}" for rank, each in list(last.items())[:8]
    )
    wraps, given = fix is WRAPPED, reduction_of(steps) if fix is FUNCTIONAL else None
    return Finding(
        f"no optimizer, and the weights of {len(last)} ranks part: {counted(len(names), 'parameter')} differ "
        f"({listed(names, 4)})",
        (
            Evidence(f"fingerprint of {names[0]}: {norms}", "the same on all ranks", f"backward {number_of(last)}"),
            Evidence("all weights were equal", "", f"backward {number_of(steps[0])}"),
            told,
        ),
        fix,
        Place(file=given.file, line=given.line) if given and given.file else place(event.site),
        ambiguity=Ambiguity(
            ("a forward goes past the wrapper", "each rank updates with other numbers, a rate or a clipped norm"),
            "grep -rnE '\\.module\\(|add_\\(|\\blr\\b' --include='*.py' .",
        )
        if wraps
        else None,
    )
