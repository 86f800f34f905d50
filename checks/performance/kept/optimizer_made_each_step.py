"""A new optimizer is made for each step, so that none remembers the steps before.

## What happens

An optimizer is made in the function that trains on one batch. Each of them begins anew: Adam's averages of gradients
hold one gradient, so that each step goes by the sign of it alone; momentum is never gathered. And making one takes
time, more than many a step.

## How to be sure

Print `len(optimizer.state)` before `optimizer.step()`: it is 0 in each step. ddpdoctor finds ten optimizers of one
kind that were made of the same parameters one after another, with one or two steps between them.

## How to mend it

Make it once, before the loop. A learning rate that changes is set in it: `group["lr"] = ...` for each of
`optimizer.param_groups`, or a schedule of `torch.optim.lr_scheduler`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, `torch.optim`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, OptimizerMadeAnew, Severity, Training, place, watch

AILMENT = Ailment("DDP921", Severity.WARNING)


@watch(OptimizerMadeAnew)
def while_training(event: OptimizerMadeAnew, training: Training) -> Iterator[Finding]:
    """Tell of the first rank that makes optimizers in its steps."""
    if any(each is not event for each in training.of(OptimizerMadeAnew)):
        return
    lost = ", and forgets what the one before had gathered" if event.remembers else ""
    yield Finding(
        f"a new {event.kind} is made for each step{lost}",
        (
            Evidence(
                f"{event.times} of them, of the same parameters, in {event.steps + 1} steps", "1", f"rank {event.rank}"
            ),
        ),
        Fix(
            "make it once, before the loop; a learning rate that changes is set in its groups",
            diff=f"+optimizer = {event.kind}(model.parameters(), lr=lr)\n for batch in loader:\n"
            f"-    optimizer = {event.kind}(model.parameters(), lr=lr)\n"
            '+    for group in optimizer.param_groups:\n+        group["lr"] = lr',
        ),
        place(event.site),
    )
