"""A training goes on in evaluation mode after its first evaluation.

## What happens

`model.eval()` before an evaluation, and no `model.train()` after it: from the second epoch on dropout passes everything
and batch normalisation uses the statistics of the first epoch and never updates them. The loss goes on falling, more
quickly at first; the model overfits, or its activations drift away from the old statistics. Nothing fails.

## How to be sure

Print `model.training` in the loop. ddpdoctor (`ddpdoctor run`) compares the modes in sampled steps: told is a wrapped
model that was in training mode in one of them, and is in evaluation mode as a whole, on all ranks, in two others after
that, where it has dropout, batch normalisation or a `forward` of the script's that asks for `self.training`.

Silent of a model that is in evaluation mode from its first step on, and of one of which a part is (frozen batch
normalisation, say): both are meant.

## How to mend it

    for epoch in range(epochs):
        model.train()
        for inputs, targets in loader:
            ...
        evaluate(model)

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.nn.Module", train.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, StepFingerprinted, Training, place, watch

from ..._ledgers.ledger import of_all_ranks
from .._alike import earlier

AILMENT = Ailment("DDP2501", Severity.WARNING)
SURE = 2  # compared steps


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at the modes of this compared step and of those before it."""
    ranks = of_all_ranks(event, training)
    if not ranks or not all(each.still for each in ranks.values()) or training.framework is not None:
        return
    past = [all(each.still for each in step.values()) for step in earlier(event, training)]
    trained = [any(each.still for each in step.values()) for step in earlier(event, training)]
    if past[: SURE - 1] != [True] * (SURE - 1) or not past[SURE - 1 :] or any(trained[SURE - 1 :]):
        return  # too early, said before, or so from the start
    names = ", ".join(event.still)
    yield Finding(
        f"the model is trained in evaluation mode: {names} was in training mode in earlier steps",
        (
            Evidence(f"in evaluation mode, with all of the model: {names}", "training mode, as before",
                     f"all ranks, step {event.number} and the compared step before it"),
        ),
        Fix(
            "put the model back into training mode after each evaluation",
            diff=" for epoch in range(epochs):\n+    model.train()\n     for inputs, targets in loader:",
        ),
        place(event.site),
    )  # fmt: skip
