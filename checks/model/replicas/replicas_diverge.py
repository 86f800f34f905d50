"""The ranks' copies of the model are not the same any more.

## What happens

DDP gives all ranks the weights of rank 0 when it wraps the model, and the same gradients in each backward. Nothing
keeps the copies equal but that every rank does the same with them: weights written on some ranks after wrapping (a
checkpoint that only rank 0 loads, an initialisation after wrapping), optimizer states loaded on some ranks, gradients
changed after backward on each rank for itself. Nothing fails; gradients are then averages over different models.

## How to be sure

ddpdoctor compares the norms of all parameters between the ranks right before the steps 1, 2, 3, 5, 7, 10, 20, 30, 50,
100, 200, 500, ... and names the first parameter and the first of these steps. What explains it (loads after wrapping,
gradients that differ) is told with it, and a line of the training's loop that writes the parameter where one rank alone
comes to it.

## How to mend it

Do the same on every rank; load before wrapping, or on all ranks.

Silent where the forward goes past the wrapper, no_sync never ends, the model changed after wrapping or the optimizers
have different options (checks of their own), and where a communication hook or the script itself exchanges gradients
or parameters.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel",
internal design.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    BackwardBypassed,
    Evidence,
    Finding,
    Fix,
    Loaded,
    Severity,
    StepFingerprinted,
    SteppedUnsynced,
    StepSampled,
    Training,
    place,
    watch,
)

from ..._ledgers.ledger import built, of_all_ranks, sheet
from .._alike import added_after_exchange, counts_differ, frozen_differ, of_one_model, states_alone_differ
from .._training import (
    Apart,
    Step,
    bypasses,
    earlier,
    gradients_apart,
    parameters_apart,
    skips_sync,
    strays_apart,
    together,
    unfinished,
    within_no_sync,
)
from .._words import before_wrapping
from ._clipped import clipped_on_some
from ._written import Written, written_by_one

AILMENT = Ailment("DDP563", Severity.ERROR)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Find the first compared step at which a parameter differs, and what explains it, once all is told of it."""
    if of_all_ranks(event, training):
        for each in training.of(StepSampled, pid=event.pid, optimizer=event.optimizer, number=event.number):
            yield from _compared(each, training)


def _compared(event: StepSampled, training: Training) -> Iterator[Finding]:
    step = together(event, training)
    if step is None:
        return
    apart = parameters_apart(step)
    past = list(earlier(event, training))
    if step.by_own_means and any(map(gradients_apart, (step, *past))):
        return  # what the script exchanges beside DDP are no gradients where these were equal in each step
    if apart is None or any(map(_explained, (step, *past))) or any(map(parameters_apart, past)):
        return
    if _of_another_optimizer(step, event, training) or within_no_sync(step, past[0] if past else None, training):
        return
    if _otherwise_told(step.number, next(iter(step.ranks.values())), training):
        return
    if _options_differ(step, training) or [*training.of(BackwardBypassed), *training.of(SteppedUnsynced)]:
        return  # checks of their own
    yield (
        _written(step, apart, training)
        if step.number == 1 and not event.closure
        else _drifted(step, apart, past, training)
    )


def _of_another_optimizer(step: Step, event: StepSampled, training: Training) -> bool:
    """Whether what another optimizer holds is said to differ: ranks were seen to be apart there before."""
    ours = _told_at(step), event.optimizer
    others = {(each.optimizer, each.number): each for each in training.of(StepSampled, pid=event.pid)
              if each.optimizer != event.optimizer}  # fmt: skip
    for each in others.values():
        other = together(each, training)
        if other is not None and (_told_at(other), each.optimizer) < ours and parameters_apart(other) is not None:
            return True
    return False


def _told_at(step: Step) -> float:
    return max(each.time for each in step.ranks.values())


def _otherwise_told(number: int, event: StepSampled, training: Training) -> bool:
    """Whether a check of its own has said what makes the replicas differ, in a compared step so far."""
    for each in training.of(StepFingerprinted, pid=event.pid, optimizer=event.optimizer):
        step = sheet(each, training)
        if step is not None and each.number <= number and added_after_exchange(step):
            return True
        ranks, held = of_one_model(each, training), built(each, training)
        if each.number <= number and ranks and held is not None and _is_told(each, ranks, held.kind, training):
            return True
    return False


def _is_told(event: StepFingerprinted, ranks: dict[int, StepFingerprinted], kind: str, training: Training) -> bool:
    return counts_differ(ranks) or frozen_differ(ranks) or bool(states_alone_differ(event, training, kind))


def _options_differ(step: Step, training: Training) -> bool:
    """Whether the optimizers of the ranks have other options, here or in a compared step before."""
    optimizer = next(iter(step.ranks.values())).optimizer
    told: dict[int, set[object]] = {}
    for each in training.of(StepFingerprinted, optimizer=optimizer):
        told.setdefault(each.number, set()).add(each.options)
    rates = {each.rates for each in step.ranks.values()}
    return len(rates) > 1 or any(len(options) > 1 for options in told.values())


def _explained(step: Step) -> bool:
    """Whether another check tells why, or torch will: it refuses the next forward."""
    if unfinished(step):
        return True
    return bool((bypasses(step) or skips_sync(step)) and gradients_apart(step)) or strays_apart(step) is not None


def _written(step: Step, apart: Apart, training: Training) -> Finding:
    when = {rank: _wrapped_at(each, step, training) for rank, each in step.ranks.items()}
    loads = [
        load
        for rank, each in step.ranks.items()
        for load in training.of(Loaded, pid=each.pid, wrapped=True)
        if load.time > when[rank]
    ]
    some = loads and {load.rank for load in loads} < {*step.ranks}
    evidence = [apart.evidence("parameter", step), Evidence("DDP gave all ranks rank 0's weights", "", _site(step))]
    if some:
        ranks = ", ".join(str(rank) for rank in sorted({load.rank for load in loads if load.rank is not None}))
        evidence.append(Evidence(f"load_state_dict on rank {ranks} only", "on all ranks", str(loads[0].site)))
    return Finding(
        f"the replicas differ before the first step: {apart.name} was "
        + ("loaded on some ranks only, after wrapping" if some else "written on each rank for itself after wrapping"),
        tuple(evidence),
        Fix(
            "load, or initialise, before wrapping: DDP then gives rank 0's weights to all",
            diff=before_wrapping(training, "model.load_state_dict(state)"),
        ),
        place(loads[0].site if some else next(iter(step.ranks.values())).site),
    )


def _wrapped_at(event: StepSampled, step: Step, training: Training) -> float:
    return max(each.time for each in training.of(type(step.wrapped), pid=event.pid, model=event.model))


def _site(step: Step) -> str:
    return str(step.wrapped.site)


def _drifted(step: Step, apart: Apart, past: list[Step], training: Training) -> Finding:
    evidence = [apart.evidence("parameter", step)]
    if past:
        evidence.append(Evidence("all parameters were equal", "", past[0].when))
    unequal = next(((found, each) for each in (*past, step) if (found := gradients_apart(each))), None)
    ambiguity = None
    clip = clipped_on_some(step.ranks.values(), training)
    evidence += clip.evidence if clip is not None else ()
    if clip is not None and clip.sure:
        fix = clip.fix
    elif unequal is not None:
        evidence.append(unequal[0].evidence("the gradient of", unequal[1]))
        fix = Fix("leave gradients as DDP averaged them, or change them alike on every rank")
        ambiguity = Ambiguity(
            (
                "gradients are changed after backward on each rank for itself",
                "a part of the model is called past the wrapper",
            ),
            "grep -rnE '\\.grad\\b|\\.module\\.' --include='*.py' .",
        )
    elif clip is None and (write := _written_by_one(step, apart)):
        return write.finding(apart.name, evidence)
    else:
        fix = clip.fix if clip else Fix("do with the weights and with the optimizer the same on every rank")
        ambiguity = Ambiguity(
            (
                *((f"{clip.how}, and in a step that was not compared that has changed them",) if clip else ()),
                "an optimizer state was loaded on some ranks only",
                "some ranks changed their gradients before the step (clip_grad_norm_, a scale, zeros)",
                "some ranks wrote parameters (clamp_, copy_, load_state_dict) or left out a step",
            ),
            "grep -rnE 'load_state_dict|clip_grad|\\.grad\\b|if .*rank.*:' --include='*.py' .",
        )
    return Finding(
        f"the replicas diverge: {apart.name} differs between the ranks"
        + (f", for {clip.how}" if clip is not None and clip.sure else ""),
        tuple(evidence),
        fix,
        clip.place if clip is not None else place(next(iter(step.ranks.values())).site),
        ambiguity=ambiguity,
    )


def _written_by_one(step: Step, apart: Apart) -> Written | None:
    """Return the line that writes a parameter on one rank alone, in the files of the training."""
    site = next(iter(step.ranks.values())).site
    return written_by_one(site.file, apart.name) if site else None
