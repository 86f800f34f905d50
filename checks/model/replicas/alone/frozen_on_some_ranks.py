"""A parameter is frozen on some ranks and trained on others.

## What happens

`requires_grad` decides on each rank for itself whether a parameter has a gradient. Where a rank freezes a part by its
own number (its own loss, its own epoch, its rank) and another does not, with `find_unused_parameters=True` DDP goes on:
it takes the gradient of the ranks that have one, divides by all, and the optimizer of a rank that has none leaves the
parameter as it is. The replicas drift apart, without an error.

## How to be sure

ddpdoctor compares in sampled steps which of the parameters that an optimizer holds require a gradient, on all ranks.

## How to mend it

Freeze by what all ranks know alike, before DDP wraps the model, or wrap it again:

    dist.all_reduce(loss)
    if loss / dist.get_world_size() < threshold:
        model = DDP(freeze(model.module))

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    place,
    tree_of,
    watch,
)

from ...._ledgers.calls import calls_of
from ...._ledgers.ledger import built
from ..._alike import earlier, frozen_differ, of_one_model
from ..._words import counted, listed

AILMENT = Ailment("DDP1501", Severity.ERROR)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what is frozen in one step, once all ranks have told it."""
    ranks, held = of_one_model(event, training), built(event, training)
    if not ranks or held is None or not frozen_differ(ranks) or any(map(frozen_differ, earlier(event, training))):
        return
    told = {rank: {held.names[at] for at in step.frozen} for rank, step in ranks.items()}
    differ = [name for name in held.names if 0 < sum(name in each for each in told.values()) < len(told)]
    if not differ:
        return
    yield Finding(
        f"{counted(len(differ), 'parameter')} frozen on some ranks and trained on others: {listed(differ, 4)}",
        tuple(
            Evidence(
                f"frozen: {listed([name for name in held.names if name in each], 4) or 'nothing'}",
                "the same on all ranks",
                f"rank {rank}, step {event.number}",
            )
            for rank, each in list(told.items())[:8]
        ),
        Fix(
            "freeze by what all ranks know alike",
            diff="+dist.all_reduce(loss)\n+loss /= dist.get_world_size()\n if loss < threshold:\n"
            "     model.module.backbone.requires_grad_(False)",
        ),
        _line(event),
    )


def _line(event: StepFingerprinted) -> Place:
    """Return the line that freezes, where the file that steps has one such; else the step's."""
    site = event.site
    if site is None:
        return place(site)
    found = calls_of({site.file}, frozenset({"requires_grad_"})) or _assigned(site.file)
    return found[0] if len(found) == 1 else place(site)


def _assigned(file: str) -> list[Place]:
    return [
        Place(file=file, line=node.lineno)
        for node in tree_of(file).of(ast.Assign)
        if any(isinstance(each, ast.Attribute) and each.attr == "requires_grad" for each in node.targets)
    ]
