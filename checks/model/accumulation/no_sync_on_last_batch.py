"""The last micro-batch before each step is within no_sync, so that its gradients are not averaged.

## What happens

`model.no_sync()` keeps DDP from averaging, for all but the last of several micro-batches whose gradients add up. Where
the last one is within it as well (`if step % k` for `if (step + 1) % k`, a context around the whole loop, a flag that
is never switched), what it adds stays on its rank: each rank trains a model of its own, without an error.

## How to be sure

The norm of a parameter's gradient differs between the ranks right before `optimizer.step()`, and the
last forward before was within no_sync. What counts is the forward: no_sync around backward alone does not
keep DDP from averaging. ddpdoctor says it when that held for thirty steps, or for all when the training has
ended; a shorter one leaves open whether the script would have averaged by hand later on. Where it held for some steps
alone (a last window with fewer micro-batches, two counters that do not agree), the weights must differ since then.

In a source (`ddpdoctor lint`): what no_sync is entered by is true in the micro-batch that the one step of the function
follows, and the function exchanges nothing by itself.

## How to mend it

Leave no_sync for the last micro-batch before each step.

Silent where a communication hook or the script itself exchanges gradients or parameters (local SGD).

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"DistributedDataParallel.no_sync".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Ended,
    Evidence,
    Finding,
    Severity,
    StepSampled,
    SyncSkipped,
    Training,
    lint,
    place,
    watch,
)

from .._training import Step, earlier, gradients_apart, line, parameters_apart, skips_sync, together, within_no_sync
from ._at_step import holds_at_step, is_followed, the_step
from ._entered import entered_by_a_test
from ._leave_the_last import LAST, PLAIN, mend

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP561", Severity.ERROR)
SURE = 30  # steps: who averages parameters by hand does so more often
FEWEST = 2


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a test by which no_sync is entered, and that holds where the optimizer steps."""
    for context, test, holds, by in entered_by_a_test(script):
        step = the_step(script, context)
        if step is None or is_followed(script, context, step) or holds_at_step(script, test, step) is not holds:
            continue
        yield Finding(
            f"{script.code(context.func)} is entered in the micro-batch that {script.code(step)} follows: its "
            "gradients are not averaged",
            (script.seen(context, "left in the last micro-batch before each step"), script.seen(step)),
            mend(by, PLAIN),
            script.place(context),
        )


@watch(StepSampled)
def while_training(event: StepSampled, training: Training) -> Iterator[Finding]:
    """Look at all steps up to one that is late enough."""
    if event.number >= SURE:
        yield from _judged(event, training)


@watch(StepSampled)
def in_some_steps(event: StepSampled, training: Training) -> Iterator[Finding]:
    """Look for weights that have parted since a step within no_sync that was not compared itself."""
    step = together(event, training)
    if step is None or step.by_own_means or (apart := parameters_apart(step)) is None:
        return
    last = next(earlier(event, training), None)
    number = within_no_sync(step, last, training)
    if last is None or number is None or parameters_apart(last) is not None:
        return
    yield Finding(
        f"the last forward before some steps, such as step {number}, is within no_sync: its gradients are not averaged",
        (
            apart.evidence("parameter", step),
            Evidence("all parameters were equal", "", last.when),
            Evidence(f"step {number}, right after a forward within no_sync", "one outside", "on every rank"),
        ),
        mend(training.framework, LAST),
        place(line(SyncSkipped, step, training)),
    )


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look at all steps that there were."""
    last = {(each.pid, each.optimizer, each.model): each for each in training.of(StepSampled)}
    for event in last.values():
        if event.number >= FEWEST:
            yield from _judged(event, training)


def _judged(event: StepSampled, training: Training) -> Iterator[Finding]:
    step = together(event, training)
    if step is None or step.by_own_means:
        return
    steps = [step, *earlier(event, training)]
    skipping = [each for each in steps if skips_sync(each) and gradients_apart(each)]
    always = all(map(skips_sync, steps)) and gradients_apart(step) is not None
    if skipping and (always or (parameters_apart(step) and not parameters_apart(skipping[-1]))):
        yield _finding(event, step if always else skipping[-1], training, always=always)


def _finding(event: StepSampled, step: Step, training: Training, *, always: bool) -> Finding:
    first, apart = next(iter(step.ranks.values())), gradients_apart(step)
    which = "the last forward before each step" if first.synced else "every forward"
    which = which if always else f"the last forward before some steps, such as step {step.number},"
    return Finding(
        which + " is within no_sync: its gradients are not averaged, each rank trains a model of its own",
        (
            *([apart.evidence("the gradient of", step)] if apart else []),
            Evidence(
                f"{first.forwards} forwards since step {step.number - 1}, "
                f"{first.forwards - first.synced} within no_sync, the last one too",
                "the last one outside",
                "on every rank",
            ),
        ),
        mend(training.framework, PLAIN if always else LAST),
        place(line(SyncSkipped, step, training)),
        ambiguity=_too_short(event) if always and event.number < SURE and not event.synced else None,
    )


def _too_short(event: StepSampled) -> Ambiguity:
    return Ambiguity(
        (
            "nothing is ever averaged",
            f"the script averages parameters by hand (local SGD), less often than every {event.number} steps",
        ),
        f"ddpdoctor run -- COMMAND   # with {SURE} steps or more",
    )
