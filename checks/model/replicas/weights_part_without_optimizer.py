"""A training without an optimizer of torch's, and the ranks' copies of the model are not the same any more.

## What happens

A script can write its own update (`p.add_(p.grad, alpha=-lr)` under `no_grad`). What DistributedDataParallel promises
holds there too: all ranks begin with the same weights and are given the same gradients, so that each computes the same
update. A forward that goes past the wrapper, a rate that each rank lowers by its own loss, gradients that nobody
exchanges: the copies part, without an error, and the file that is saved has those of one rank.

## How to be sure

No optimizer of torch's was built. ddpdoctor takes fingerprints of the weights when a backward begins, at the 1st, 2nd,
3rd, 5th, 7th, 10th, 20th ... one, on all ranks. They were equal in the first, and differ in a later one. Of a model
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
    Severity,
    Training,
    WeightsFingerprinted,
    place,
    watch,
)

from ..._sheets import EXCLUSIVE, NEVER
from ..._updates import Ranks, apart, complete
from .._words import counted, listed

AILMENT = Ailment("DDP1542", Severity.ERROR)
LEAST = 3  # compared backwards
SURE = 30
HALF = 0.5  # of a model: whoever exchanges parameters sends as much
WRAPPED = Fix(
    "call the wrapped model, and update with the same numbers on every rank",
    diff="-outputs = model.module(inputs)\n+outputs = model(inputs)",
)
BY_HAND = Fix(
    "average the gradients between backward and the update",
    diff=" loss.backward()\n+for parameter in model.parameters():\n+    dist.all_reduce(parameter.grad)\n"
    "+    parameter.grad /= dist.get_world_size()",
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
    numbers = sorted({each.number for each in training.of(WeightsFingerprinted) if each.number <= event.number})
    steps = [ranks for number in numbers if len(ranks := complete(number, training)) > 1]
    if len(steps) < LEAST or event.number not in {each.number for each in steps[-1].values()}:
        return
    if len({(each.names, each.sizes) for ranks in steps for each in ranks.values()}) > 1 or _is_parallel(steps[-1]):
        return
    differ = apart(steps[-1])
    if apart(steps[0]) or not differ:
        return
    wrapped = [at for at in differ if event.managed[at] != NEVER]
    if wrapped and not _sends(steps[0], steps[-1]):
        yield _finding(event, steps, wrapped, _forwards(steps[-1]), WRAPPED)
        return
    alone = ended and all(each == NEVER for each in event.managed) and all(map(apart, steps[1:]))
    proof = _one_training(steps, training) if alone else None
    if proof is not None:
        yield _finding(event, steps, differ, proof, BY_HAND)


def _is_parallel(ranks: Ranks) -> bool:
    names = {name for each in ranks.values() for name, *_ in each.sent}
    return bool(names & EXCLUSIVE) or any(each.subgroups or each.hooks for each in ranks.values())


def _sends(first: Ranks, last: Ranks, times: int = 1) -> bool:
    """Whether so much was sent in between that all weights, or gradients, can have gone out so often."""
    sent = max(_sent(last[rank]) - _sent(first[rank]) for rank in first if rank in last)
    return sent >= HALF * times * sum(next(iter(last.values())).sizes)


def _reduces(first: Ranks, last: Ranks) -> bool:
    """Whether as much goes through all_reduce in each step as there are gradients."""
    often = _calls(last, "all_reduce") - _calls(first, "all_reduce")
    steps = _number(last) - _number(first)
    return often >= steps and _sends(first, last, steps)


def _sent(event: WeightsFingerprinted) -> int:
    return sum(elements for *_, elements in event.sent)


def _calls(ranks: Ranks, operation: str) -> int:
    return sum(calls for name, calls, _ in next(iter(ranks.values())).sent if name == operation)


def _forwards(ranks: Ranks) -> Evidence:
    told = ", ".join(f"{each.forwards} on rank {rank}" for rank, each in ranks.items())
    return Evidence(f"forwards through the wrapper so far: {told}", f"one for each of {_number(ranks)} backwards", "")


def _one_training(steps: list[Ranks], training: Training) -> Evidence | None:
    """Find what shows that ranks that nobody keeps equal are to train one model."""
    first, last = steps[0], steps[-1]
    if _sends(first, last):
        if not all(_reduces(*pair) for pair in pairwise(steps)):
            return None  # weights are averaged now and then
        calls = _calls(last, "all_reduce")
        return Evidence(f"all_reduce was called {calls} times, in each step, and the weights part", "", "all ranks")
    if _calls(first, "broadcast") and _sent(next(iter(first.values()))) >= HALF * sum(next(iter(first.values())).sizes):
        return Evidence("the weights were broadcast before the first backward", "", "all ranks")
    if _calls(last, "all_reduce") > _calls(first, "all_reduce"):
        return Evidence(f"all_reduce was called {_calls(last, 'all_reduce')} times, with no gradients", "", "all ranks")
    for passed in training.of(EpochStarted):
        if passed.sampler is not None and passed.sampler.replicas == len(last):
            told = f"{passed.sampler.kind} shares {passed.dataset} out to {len(last)} ranks"
            return Evidence(told, "", str(passed.site))
    return None


def _number(ranks: Ranks) -> int:
    return next(iter(ranks.values())).number


def _finding(event: WeightsFingerprinted, steps: list[Ranks], at: list[int], told: Evidence, fix: Fix) -> Finding:
    names, last = [event.names[each] for each in at], steps[-1]
    norms = ", ".join(
        f"{(each.values[at[0]] or (0.0,))[-1]:.6g} on rank {rank}" for rank, each in list(last.items())[:8]
    )
    wraps = fix is WRAPPED
    return Finding(
        f"no optimizer, and the weights of {len(last)} ranks part: {counted(len(names), 'parameter')} differ "
        f"({listed(names, 4)})",
        (
            Evidence(f"fingerprint of {names[0]}: {norms}", "the same on all ranks", f"backward {_number(last)}"),
            Evidence("all weights were equal", "", f"backward {_number(steps[0])}"),
            told,
        ),
        fix,
        place(event.site),
        ambiguity=Ambiguity(
            ("a forward goes past the wrapper", "each rank updates with other numbers, a rate or a clipped norm"),
            "grep -rnE '\\.module\\(|add_\\(|\\blr\\b' --include='*.py' .",
        )
        if wraps
        else None,
    )
