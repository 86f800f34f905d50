"""A model is evaluated in training mode.

## What happens

Without `model.eval()` dropout goes on dropping, and batch normalisation normalises each batch by itself: the metric is
not that of the model that is saved. Batch normalisation also takes the samples of the evaluation into its running
statistics, each rank those of its own share; DDP then gives all ranks rank 0's. So the training itself is changed by
the evaluation, and in another way with another number of GPUs. Nothing fails.

## How to be sure

Evaluate twice: with dropout the numbers differ. ddpdoctor (`ddpdoctor run`) looks at what the first evaluations call.
Reported is a model that DDP wraps, or another one of its class (an average of its weights, say), which is in training
mode as a pass over a loader evaluates it without gradients, and has dropout or batch normalisation; where a function
that is named for an evaluation keeps sums over that pass.

Silent where the function says that it draws on purpose (Monte Carlo dropout), or that it computes statistics anew, and
where a `forward` of the script's asks for `self.training`: a detector returns its losses in training mode alone.

## How to mend it

    model.eval()
    with torch.no_grad():
        for inputs, targets in loader:
            ...
    model.train()

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.nn.Module", eval.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    EvaluatedInTraining,
    Evidence,
    Finding,
    Fix,
    Severity,
    Site,
    Training,
    Wrapped,
    place,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from ..._evaluation.metrics import adds_up_by_hand

AILMENT = Ailment("DDP1648", Severity.WARNING)
EVALUATES = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|dev|infer|predict|accuracy|score|metrics?)(_|$)",
    re.IGNORECASE,
)
"""In the name of a function that evaluates."""
ON_PURPOSE = re.compile(
    r"(^|_)(mc|bn|ttt|tta)(_|$)|monte|bayes|uncertain|stochastic|calibrat|recompute|adapt|sampl", re.IGNORECASE
)
"""In that of one that draws on purpose, or computes statistics anew."""
OF_TORCH = re.compile(r"\(\w*(?:Dropout|BatchNorm|RNN|LSTM|GRU)\w*\)$")
"""A layer of torch's, as it is told: what it returns is of one kind in both modes."""


@watch(EvaluatedInTraining)
def while_training(event: EvaluatedInTraining, training: Training) -> Iterator[Finding]:
    """Look for it once all ranks have told of the same evaluation."""
    ranks = training.complete(EvaluatedInTraining, number=event.number, module=event.module)
    wrapped = {each.kind.rpartition(".")[2] for each in training.of(Wrapped)}
    if not ranks or event.module.rpartition(".")[2] not in wrapped or training.framework is not None:
        return
    if len({each.names for each in ranks.values()}) > 1 or not shares_gradients(event.pid, training):
        return
    if any(each.module == event.module for each in training.before(event) if each.pid == event.pid):
        return  # said before
    if not all(map(OF_TORCH.search, event.names)):
        return  # what the pass sums can be what only training mode returns
    functions = [function for _, _, function in event.callers]
    if not any(map(EVALUATES.search, functions)) or any(map(ON_PURPOSE.search, functions)):
        return
    if not adds_up_by_hand(event.callers):
        return
    names = ", ".join(event.names)
    yield Finding(
        f"{event.module} is evaluated in training mode: {names} computes otherwise there",
        (
            Evidence(f"in training mode: {names}", "evaluation mode", f"all ranks, evaluation {event.number}"),
            Evidence(f"{functions[0]} keeps sums over a pass without gradients", "", str(Site(*event.callers[0]))),
        ),
        Fix(
            "put the model into evaluation mode before the pass, and back into training mode after it",
            diff="+model.eval()\n with torch.no_grad():\n     for inputs, targets in loader:\n+model.train()",
        ),
        place(Site(*event.callers[0])),
    )
