"""The gradients of some parameters are exchanged, and those of others are not.

## What happens

DistributedDataParallel averages the gradients of the module that it is given, and of nothing else. A second network
(the critic of a GAN, a head beside the backbone, a learnable loss) that nobody wraps, or a loop over `parameters()`
that leaves some out, trains these parameters on each rank for itself: they drift apart, without an error, and the file
that is saved has those of one rank.

## How to be sure

ddpdoctor takes fingerprints of each parameter's gradient in sampled steps, on each rank. Here some were given the same
on all ranks, and others on each rank its own, of parameters that were equal before the first step; or the script
exchanges what another optimizer steps with, and not these.

Silent where there are groups of some ranks, or communications within a model (send, recv, all_to_all), and for
parameters that began differently: experts and shards belong to their rank. A network whose optimizer does not take
turns with that of a wrapped model is left alone: it is a copy that is tuned by itself. Trained parameters that DDP was
told to ignore are a note: that is meant where each rank saves its own (normalisation that stays at home), and a fault
where the list was to have what is frozen (the base of a LoRA, by a word that the adapters' names have as well).

## How to mend it

Wrap each module that is trained, or wrap one module that holds them all; by hand, go through all that the optimizer
holds. With FSDP, shard the layers and then the whole model: the last call takes up what no other has.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from ddpdoctor.check import (
    ANOTHERS,
    Ailment,
    Evidence,
    Exchange,
    Finding,
    Fix,
    ParametersHeld,
    Severity,
    Sharded,
    StepFingerprinted,
    StepSampled,
    Training,
    Wrapped,
    place,
    watch,
)

from ...._ledgers.ledger import data_parallel_sheets, starts_apart
from ...._ledgers.sheets import NEVER, Line, Sheet
from ...._ledgers.wordings import caller_of, seen
from ..._training import strays_apart, together
from ..._words import counted, listed
from ._left_out import ignored, on_the_list, wrap_as_well
from ._one_training import shared_out

AILMENT = Ailment("DDP570", Severity.ERROR)
SURE = 2
GATHERS = ("all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "gather", "scatter")
"""Who calls these may have put a model together of parts that are each rank's own."""


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for parameters whose gradients stay each rank's own, beside others that are exchanged."""
    steps = data_parallel_sheets(event, training, SURE)
    if not steps or any(map(_is_anothers, training.of(StepSampled, pid=event.pid), repeat(training))):
        return
    names, last = _in_both(steps[-2:]), steps[-1]
    if not names:
        yield from _begun_apart(steps, training)
    if not names or _was_told(steps, training):
        return
    shared = [line for line in last.lines if _is_shared(line)]
    wrapped = training.of(Wrapped, pid=event.pid)
    sharded = training.of(Sharded, pid=event.pid, shards=True) if last.held.shards else []
    others = last.exchanged(ANOTHERS) if steps[-2].exchanged(ANOTHERS) else []
    if not shared and not sharded and not others and not (wrapped and _takes_turns(steps, training)):
        return
    left, model = ignored(names, wrapped)
    if model is not None and len(left) == len(names):
        yield on_the_list(left, model, seen(_largest(last, left), last))
        return
    names = [name for name in names if name not in left]
    line = _largest(last, names)
    exchanged = [each for each in last.exchanged("gradient") if each.when == "after backward"]
    yield Finding(
        f"the gradients of {counted(len(names), 'parameter')} are not exchanged between the ranks: {listed(names, 6)}",
        (*seen(line, last), _sharded(last, sharded[-1]) if sharded else _others(shared, wrapped, others)),
        _by_hand() if exchanged or others else _shard(sharded) if sharded else wrap_as_well(training, names, last.held),
        caller_of(exchanged[0], last) if exchanged else place((event if others else last.held).site),
    )


def _begun_apart(steps: list[Sheet], training: Training) -> Iterator[Finding]:
    """Look for parameters beside those that DDP averages that were each rank's own from the start.

    Nothing may go from rank to rank within the model, and one data set be shared out: else they may be meant to differ.
    """
    *earlier, before, last = steps
    names = _apart_in(before) and _apart_in(last)
    shared = [line for line in last.lines if _is_shared(line) and line.managed != NEVER]
    proof = next(shared_out(last, training), None)
    was_told = bool(earlier) and bool(_apart_in(earlier[-1])) and any(map(_is_shared, before.lines))
    if not names or not shared or proof is None or was_told or any(map(last.calls, GATHERS)):
        return
    left, _ = ignored(names, training.of(Wrapped))
    line = _largest(last, names)
    if left or last.exchanged(ANOTHERS) or last.exchanged("gradient"):
        return
    yield Finding(
        f"{counted(len(names), 'parameter')} beside the model that DDP averages began with other values on each rank, "
        f"and nobody averages their gradients: {listed(names, 6)}",
        (*seen(line, last), _others(shared, [], []), proof),
        wrap_as_well(training, names, last.held),
        place(last.held.site),
        severity=Severity.WARNING,
    )


def _apart_in(step: Sheet) -> list[str]:
    """Name what each rank's optimizer steps with by its own gradient, where some of it began with other values."""
    own = [line.name for line in step.lines if line.tells and line.unchanged and line.managed == NEVER]
    return own if set(own) & set(starts_apart(step)) else []


def _largest(step: Sheet, names: list[str]) -> Line:
    return max((each for each in step.lines if each.name in names), key=lambda each: each.size)


def _is_anothers(event: StepSampled, training: Training) -> bool:
    """Whether it is said that DDP did not see these parameters when it wrapped the model."""
    step = together(event, training) if event.unmanaged else None
    return step is not None and step.number >= SURE and not step.by_own_means and strays_apart(step) is not None


def _is_shared(line: Line) -> bool:
    """Whether all ranks are given the mean, or each a multiple of it: by a norm that its own gradients are part of.

    Of one element any number is a multiple of any other, and where the ranks' gradients point the same way, of its own.
    """
    if line.shared or not line.tells or line.size == 1 or line.own:
        return line.shared
    return all(times is not None and times > 0 for times in map(line.times_mean, range(len(line.given))))


def _left_out(step: Sheet) -> list[Line]:
    return [line for line in step.lines if line.tells and line.unchanged and line.replica and line.managed == NEVER]


def _was_told(steps: list[Sheet], training: Training) -> bool:
    """Whether the step before has shown it already."""
    return bool(_in_both(steps[-3:-1])) and (
        bool(steps[-1].held.shards)
        or any(map(_is_shared, steps[-2].lines))
        or all(each.exchanged(ANOTHERS) for each in steps[-3:-1])
        or _takes_turns(steps[:-1], training)
    )


def _takes_turns(steps: list[Sheet], training: Training) -> bool:
    """Whether an optimizer of wrapped parameters has stepped between these steps: a copy has its own time to train."""
    first, last = (next(iter(each.ranks.values())) for each in (steps[0], steps[-1]))
    wrapped = {
        each.optimizer for each in training.of(ParametersHeld, pid=first.pid) if any(of != NEVER for of in each.managed)
    }
    others = training.of(StepFingerprinted, pid=first.pid)
    return any(each.optimizer in wrapped and first.time < each.time < last.time for each in others)


def _in_both(steps: list[Sheet]) -> list[str]:
    """Name the parameters that were left out before two steps after one another."""
    if len(steps) < SURE:
        return []
    before = {line.name for line in _left_out(steps[0])}
    return [line.name for line in _left_out(steps[1]) if line.name in before]


def _others(shared: list[Line], wrapped: list[Wrapped], others: list[Exchange]) -> Evidence:
    if others:
        first = others[0]
        told = f"{first.operation} of the gradients that another optimizer steps with, {first.calls} times"
        return Evidence(told, "of these as well", f"{first.file}:{first.line}")
    if shared:
        names = listed([line.name for line in shared], 4)
        return Evidence(f"{counted(len(shared), 'other parameter')} are exchanged: {names}", "", "same step")
    return Evidence(f"{wrapped[-1].kind} is wrapped", "", str(wrapped[-1].site))


def _sharded(step: Sheet, event: Sharded) -> Evidence:
    return Evidence(
        f"{counted(step.held.shards, 'parameter')} of the optimizer are sharded by {event.api}, of which FSDP averages "
        "the gradients",
        "all that are trained",
        str(event.site),
    )


def _shard(sharded: list[Sharded]) -> Fix:
    api = sharded[-1].api
    if any(each.ignored for each in sharded):
        argument = (
            "ignored_params={*model.head.parameters()}" if api == "fully_shard" else "ignored_modules=[model.head]"
        )
        return Fix(
            f"leave to {api} what is trained: of what it is told to ignore it exchanges nothing",
            diff=f"-{api}(model, {argument})\n+{api}(model)",
        )
    whole = "+fully_shard(model)" if api == "fully_shard" else f"+model = {api}(model)"
    return Fix(
        "shard the whole model last: it takes up what no part of it has",
        diff=f" for layer in model.layers:\n     {api}(layer)\n{whole}\n optimizer = torch.optim.AdamW(...)",
    )


def _by_hand() -> Fix:
    return Fix(
        "exchange the gradients of all parameters that the optimizer holds",
        diff="-for parameter in model.head.parameters():\n"
        "+for parameter in [each for group in optimizer.param_groups for each in group['params']]:\n"
        "     dist.all_reduce(parameter.grad)\n     parameter.grad /= dist.get_world_size()",
    )
