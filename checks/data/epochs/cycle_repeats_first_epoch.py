"""itertools.cycle keeps the batches of the first epoch, and gives them again and again.

## What happens

`itertools.cycle(loader)` goes through the loader once, and keeps what it gave. From the second epoch on the model gets
the same batches in the same order, with the augmentations that they had in the first one, whatever set_epoch is told;
and the whole data set stays in memory.

## How to be sure

ddpdoctor (`ddpdoctor run`) sees that a pass over a loader that shuffles was begun by `cycle(...)`, fed a model, and
has ended while the training asks for more. In a source (`ddpdoctor lint`): `itertools.cycle` of a DataLoader that
shuffles.

## How to mend it

    def forever(loader):
        for epoch in itertools.count():
            loader.sampler.set_epoch(epoch)
            yield from loader

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: Python documentation, "itertools.cycle".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EpochEnded,
    Evidence,
    Finding,
    Fix,
    Severity,
    Training,
    calls_at,
    keyword,
    last_name,
    lint,
    place,
    watch,
)

from ..._scripts.source import LOADER, SAMPLER
from .._passes import rank_pass

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Site

AILMENT = Ailment("DDP618", Severity.WARNING)
CYCLE = "itertools.cycle"
MEND = Fix(
    "go through the loader anew in each epoch",
    diff="-batches = itertools.cycle(loader)\n+def forever(loader):\n+    for epoch in itertools.count():\n"
    "+        loader.sampler.set_epoch(epoch)\n+        yield from loader\n+batches = forever(loader)",
)


@watch(EpochEnded)
def while_training(event: EpochEnded, training: Training) -> Iterator[Finding]:
    """Look for a pass that cycle() has begun, and that is over while more is asked for."""
    this = rank_pass(event, training)
    if this is None or event.site is None or not (event.trained and event.complete) or this.sampler is None:
        return
    shuffles = this.sampler.kind == "RandomSampler" or this.sampler.shuffle is True
    if not shuffles or not _cycles(event.site):
        return
    yield Finding(
        f"cycle() has kept the {event.batches} batches of the first epoch, and gives them again in each one",
        (
            Evidence(
                f"cycle() goes through a loader with {this.sampler.kind}", "a new pass in each epoch", str(event.site)
            ),
            Evidence(f"{event.batches} batches, and the training asks for more", "", f"rank {event.rank}"),
        ),
        MEND,
        place(event.site),
    )


def _cycles(site: Site) -> bool:
    return any(last_name(each.func) == "cycle" for each in calls_at(site.file, site.line))


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for cycle() of a loader that shuffles, on whichever way it was made."""
    for call in script.calls(CYCLE):
        made = script.can_hold(call.args[0]) if call.args and isinstance(call.args[0], ast.Name) else []
        loaders = [each for each in made if isinstance(each, ast.Call) and script.resolve(each.func) == LOADER]
        if not loaders or len(loaders) < len(made) or not all(_shuffles(script, each) for each in loaders):
            continue
        if script.joins or script.joins_elsewhere(call):
            yield Finding(
                "cycle() keeps the batches of the first epoch, and gives them again in each one",
                (script.seen(call, "a new pass over the loader in each epoch"), script.seen(loaders[0])),
                MEND,
                script.place(call),
            )


def _shuffles(script: Script, loader: ast.Call) -> bool:
    """Whether a loader has another order in each epoch, with each sampler that it can be given."""
    shuffle, sampler = keyword(loader, "shuffle"), keyword(loader, "sampler")
    made = script.can_hold(sampler) if isinstance(sampler, ast.Name) else [sampler]
    samplers = [each for each in made if isinstance(each, ast.Call)]
    if any(script.resolve(each.func) == SAMPLER for each in samplers) and len(samplers) == len(made):
        return all(_draws(script, each) for each in samplers)
    return isinstance(shuffle, ast.Constant) and shuffle.value is True


def _draws(script: Script, sampler: ast.Call) -> bool:
    path = script.resolve(sampler.func) or ""
    told = keyword(sampler, "shuffle")
    is_shuffled = told is None or (isinstance(told, ast.Constant) and told.value is True)
    return (path == SAMPLER and is_shuffled) or (path.startswith("torch.") and path.endswith(".RandomSampler"))
