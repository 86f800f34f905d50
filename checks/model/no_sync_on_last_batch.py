"""The last micro-batch before each step is within no_sync, so that its gradients are not averaged.

## What happens

`model.no_sync()` keeps DDP from averaging, for all but the last of several micro-batches whose gradients add up. Where
the last one is within it as well (`if step % k` for `if (step + 1) % k`, a context around the whole loop, a flag that
is never switched), what it adds stays on its rank: each rank trains a model of its own, without an error.

## How to be sure

The norm of a parameter's gradient differs between the ranks right before `optimizer.step()`, and the
last forward before was within no_sync. What counts is the forward: no_sync around backward alone does not
keep DDP from averaging. ddpdoctor says it when that held for thirty steps, or for all when the training has
ended; a shorter one leaves open whether the script would have averaged by hand later on.

## How to mend it

Leave no_sync for the last micro-batch before each step.

Silent where a communication hook or the script itself exchanges gradients or parameters (local SGD).

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"DistributedDataParallel.no_sync".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Ended,
    Evidence,
    Finding,
    Fix,
    Severity,
    StepSampled,
    SyncSkipped,
    Training,
    place,
    watch,
)

from ._training import earlier, gradients_apart, line, skips_sync, together

AILMENT = Ailment("DDP561", Severity.ERROR)
SURE = 30  # steps: who averages parameters by hand does so more often
FEWEST = 2


@watch(StepSampled)
def while_training(event: StepSampled, training: Training) -> Iterator[Finding]:
    """Look at all steps up to one that is late enough."""
    if event.number >= SURE:
        yield from _judged(event, training)


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look at all steps that there were."""
    last = {(each.pid, each.optimizer, each.model): each for each in training.of(StepSampled)}
    for event in last.values():
        if event.number >= FEWEST:
            yield from _judged(event, training)


def _judged(event: StepSampled, training: Training) -> Iterator[Finding]:
    step = together(event, training)
    if step is None or step.by_own_means or not skips_sync(step) or not all(map(skips_sync, earlier(event, training))):
        return
    if apart := gradients_apart(step):
        yield Finding(
            ("the last forward before each step" if event.synced else "every forward")
            + " is within no_sync: its gradients are not averaged, each rank trains a model of its own",
            (
                apart.evidence("the gradient of", step),
                Evidence(
                    f"{event.forwards} forwards since step {step.number - 1}, "
                    f"{event.forwards - event.synced} within no_sync, the last one too",
                    "the last one outside",
                    "on every rank",
                ),
            ),
            Fix(
                "leave no_sync for the last micro-batch before each step",
                diff=" for index, (inputs, targets) in enumerate(loader):\n"
                "+    last = (index + 1) % accumulate == 0\n"
                "+    with contextlib.nullcontext() if last else model.no_sync():\n"
                "         (criterion(model(inputs), targets) / accumulate).backward()\n"
                "+    if last:\n"
                "         optimizer.step()\n"
                "         optimizer.zero_grad()",
            ),
            place(line(SyncSkipped, step, training)),
            ambiguity=_too_short(event) if event.number < SURE and not event.synced else None,
        )


def _too_short(event: StepSampled) -> Ambiguity:
    return Ambiguity(
        (
            "nothing is ever averaged",
            f"the script averages parameters by hand (local SGD), less often than every {event.number} steps",
        ),
        f"ddpdoctor run -- COMMAND   # with {SURE} steps or more",
    )
