"""Gradients are cleared between backward and the optimizer's step.

## What happens

`zero_grad()` after `backward()` and before `step()` throws away what DDP has just averaged: the optimizer finds no
gradient, skips every parameter, and the model stays as it was initialised. Nothing fails, the loss does not fall.

## How to be sure

In two steps after one another backward left gradients, and right before `step()` there is none, or all
are zero.

## How to mend it

`zero_grad()` before the forward, or after `step()`.

Not looked at where `step` is given a closure, which computes gradients by itself.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.optim", taking an
optimization step.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, StepSampled, Training, place, watch

AILMENT = Ailment("DDP566", Severity.ERROR)


@watch(StepSampled)
def while_training(event: StepSampled, training: Training) -> Iterator[Finding]:
    """Compare what backward left with what the optimizer finds, in two steps."""
    last = next(training.before(event, optimizer=event.optimizer, model=event.model), None)
    if last is not None and _cleared(event) and _cleared(last):
        yield Finding(
            "gradients are cleared after backward: the optimizer finds none, and changes nothing",
            (
                Evidence(
                    f"backward left {event.left} gradients; right before step {event.number} none is left",
                    "zero_grad() before the forward, or after step()",
                    f"rank {event.rank}",
                ),
                Evidence(f"the same before step {last.number}", "", f"rank {event.rank}"),
            ),
            Fix(
                "clear gradients before the forward",
                diff="+optimizer.zero_grad()\n loss = criterion(model(inputs), targets)\n loss.backward()\n"
                "-optimizer.zero_grad()\n optimizer.step()",
            ),
            place(event.site),
        )


def _cleared(event: StepSampled) -> bool:
    """Whether there were gradients, and none of what the optimizer holds has one."""
    held = bool(event.gradients) and not any(event.gradients) and not event.active
    return held and bool(event.left) and not event.unheld and not event.closure
