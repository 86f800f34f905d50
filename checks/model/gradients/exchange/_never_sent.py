"""Why gradients were never exchanged: what was wrapped, what was called, and what was sent in their place."""

from __future__ import annotations

from ddpdoctor.check import (
    Evidence,
    Fix,
    ParametersHeld,
    Place,
    StepFingerprinted,
    StepSampled,
    Training,
    Wrapped,
    place,
)

from ...._ledgers.calls import WRAPPERS, calls_in
from ...._ledgers.sheets import NEVER, Sheet
from ...._ledgers.wordings import caller_of, line_of
from ._one_training import HALF, sends_after_backward

DDP_FIX = Fix(
    "wrap the model before the optimizer is built",
    diff="+model = torch.nn.parallel.DistributedDataParallel(model)\n optimizer = torch.optim.SGD(model.parameters())",
)


def is_within_another(event: StepFingerprinted, training: Training, *, ended: bool) -> bool:
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


def is_wrapped(training: Training) -> bool:
    """Whether an optimizer holds parameters of a wrapped model."""
    managed = any(number != NEVER for each in training.of(ParametersHeld) for number in each.managed)
    return managed or any(each.unmanaged for each in training.of(StepSampled))


def beside(training: Training) -> list[Evidence]:
    """Return the model that is wrapped, and that no optimizer trains."""
    return [
        Evidence(f"{each.kind} is wrapped, and no optimizer holds what DDP averages of it", "", str(each.site))
        for each in training.of(Wrapped)[:1]
    ]


def unreached(step: Sheet, training: Training, told: Evidence) -> list[Evidence]:
    """Return the line that would have wrapped a model, where the script has one and it is not told yet."""
    wraps = [] if training.of(Wrapped) else calls_in(step, WRAPPERS)[:1]
    return [
        Evidence("this line wraps a model, and no rank has come to it", "reached on each rank", str(line))
        for line in wraps
        if str(line) != told.source
    ]


def wrap(training: Training) -> Fix:
    framework = training.framework
    if framework is None:
        return DDP_FIX
    return Fix(f"have {framework.name} wrap the model", diff=framework.model)


def never(step: Sheet) -> bool:
    """Whether all gradients that tell anything are each rank's own."""
    telling = step.lines_that_tell
    apart = all(line.managed == NEVER and line.apart for line in telling)
    own = not step.exchanged("gradient") or all(line.own for line in telling)
    return apart and own and bool(telling)


def sends_as_much(steps: list[Sheet]) -> bool:
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


def when_sent(step: Sheet) -> Evidence:
    first = step.exchanged("gradient")[0]
    told = f"{first.operation}, {first.calls} times, {first.when} of step {step.number}"
    return Evidence(f"{told}: the gradients that the step is given stay as they were", "", f"{first.file}:{first.line}")


def message(step: Sheet, *, misplaced: bool) -> str:
    if not misplaced:
        return f"the gradients of {len(step.ranks)} ranks are never exchanged: each trains a model of its own"
    when = step.exchanged("gradient")[0].when
    if when == "before backward":
        return (
            "gradients are reduced before backward, or after the step, and not in between: each rank steps with its own"
        )
    return "what is reduced are not the gradients that the optimizer steps with: each rank steps with its own"


def place_of(step: Sheet, *, misplaced: bool, by_hand: bool) -> Place:
    if misplaced:
        first = step.exchanged("gradient")[0]
        return caller_of(first, step) if first.when == "before backward" else line_of(first)
    return place(next(iter(step.ranks.values())).site if by_hand else step.held.site)
