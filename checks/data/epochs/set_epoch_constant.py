"""set_epoch is called with the same number in each epoch.

## What happens

`sampler.set_epoch(0)` within the loop over epochs tells the sampler the same epoch each time, and its order stays
that of the first epoch. Usual causes: a call that was copied, or a loop variable called `_`.

## How to be sure

ddpdoctor finds that set_epoch does change the order of this loader, and that all calls in the sources pass the same
literal. A call on a sampler whose name says evaluation, or in a function whose name does, does not count; nothing is
said where the sources make a sampler anew in a loop, with a seed of its own.

In a running training (`ddpdoctor run`), ddpdoctor reports two epochs that had one order where the sampler, which was
told an epoch, had the same one in both. Where the sampler was made anew in between three such epochs are needed, and
where a model was wrapped in between another training has begun. A first call that passes a variable, and comes when the
first epoch has begun, is told as too late: the first two epochs have one order.

In a source (`ddpdoctor lint`): within a loop over epochs, a sampler that shuffles is told a literal.

## How to mend it

Pass the variable of the loop, `sampler.set_epoch(epoch)`, in each epoch, before the loop over its batches.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.utils.data.distributed.DistributedSampler", the warning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EpochSet,
    Evidence,
    Finding,
    Fix,
    NotRun,
    OrderSeen,
    Place,
    Severity,
    Training,
    calls_at,
    dotted,
    lint,
    place,
    probe,
    watch,
)

from ..._scripts.source import shuffling_samplers
from .._passes import repeated
from .._words import shown
from ._stored_epoch import is_at_the_beginning, stores_of
from ._told_epochs import epoch_of, given_as, in_loop, is_a_sampler, is_of_training

if TYPE_CHECKING:
    from ddpdoctor.check import Around, LoaderExam, Script, Site

    from .._passes import RankPass

AILMENT = Ailment("DDP613", Severity.WARNING)


@probe
def by_the_sources(loader: LoaderExam) -> Iterator[Finding]:
    """Look at what the calls pass, where set_epoch matters."""
    ranks, source = loader.indexed(), loader.source
    sampler = ranks[0].sampler
    if sampler is None or not sampler.has_set_epoch:
        raise NotRun("no sampler that takes an epoch")
    repeats = all(rank.repeats for rank in ranks)
    reacts = any(rank.reacts for rank in ranks)
    calls = source.always_the_same
    if not (calls and repeats and reacts and source.epoch_loop) or source.frameworks or source.reseeds:
        return
    call = calls[0]
    told = f"{call.receiver}.set_epoch({call.constant})"
    yield Finding(
        f"each epoch has the same order: {told} passes a constant",
        (
            Evidence(told, f"{call.receiver}.set_epoch(epoch)", f"{call.file}:{call.line}"),
            Evidence(
                f"epochs 1 and 2 would begin {shown(ranks[0].told[0].indices)} and {shown(ranks[0].told[1].indices)}",
                "",
                "rank 0's sampler",
            ),
        ),
        Fix(
            "pass the variable of the loop",
            diff=f" for epoch in range(epochs):\n-    {told}\n+    {call.receiver}.set_epoch(epoch)",
        ),
        Place(file=call.file, line=call.line),
    )


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the order of an epoch with that of the epoch before, where this sampler was told the epoch."""
    last, this = repeated(event, training) or (None, None)
    if this is None or last is None or this.sampler is None or last.sampler is None:
        return
    numbers = {this.sampler.number, last.sampler.number}
    calls = [call for call in training.of(EpochSet, pid=event.pid) if call.sampler in numbers]
    if not calls or not this.sampler.shuffle or last.sampler.epoch != this.sampler.epoch:
        return
    if len(calls) == 1 and calls[0].time > last.started.time and _passes_a_variable(calls[0].site):
        yield _too_late(event, calls[0], last)
        return
    again = any(last.started.time < call.time <= this.started.time for call in calls)
    told = f"set_epoch({calls[-1].epoch})"
    yield Finding(
        f"each epoch has the same order: {told} is called " + ("each time" if again else "once, and not again"),
        (
            Evidence(
                f"epochs {last.order.number} and {event.number} both begin {shown(event.indices)}",
                "two orders",
                f"rank {event.rank}",
            ),
            Evidence(f"the sampler's epoch is {this.sampler.epoch} in both", "another in each", str(calls[-1].site)),
        ),
        Fix(
            "pass the variable of the loop, in each epoch",
            diff=f" for epoch in range(epochs):\n-    loader.sampler.{told}\n+    loader.sampler.set_epoch(epoch)",
        ),
        place(calls[-1].site),
    )


def _passes_a_variable(site: Site | None) -> bool:
    """Whether a line gives set_epoch what a loop counts."""
    found = [each for each in calls_at(site.file, site.line) if each.args] if site else []
    called = [each for each in found if isinstance(each.func, ast.Attribute) and each.func.attr == "set_epoch"]
    return bool(called) and all(isinstance(each.args[0], ast.Name) for each in called)


def _too_late(event: OrderSeen, call: EpochSet, last: RankPass) -> Finding:
    """The sampler was told the first time when its first epoch had begun: an iterator has its order by then."""
    return Finding(
        f"the first two epochs have the same order: set_epoch({call.epoch}) is called when the epoch has begun",
        (
            Evidence(
                f"epochs {last.order.number} and {event.number} both begin {shown(event.indices)}",
                "two orders",
                f"rank {event.rank}",
            ),
            Evidence(
                f"no call before {last.started.site}, where the first epoch begins", "one before it", str(call.site)
            ),
        ),
        Fix(
            "tell it the epoch before the loop over the batches",
            diff=" for epoch in range(epochs):\n+    loader.sampler.set_epoch(epoch)\n     for batch in loader:\n"
            "         ...\n-    loader.sampler.set_epoch(epoch)",
        ),
        place(call.site),
    )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a literal, or nothing, where the sampler of a loader is told the epoch in a loop over epochs."""
    samplers = {sampled.name for sampled in shuffling_samplers(script)}
    for loop in script.epoch_loops():
        for node in script.inside(*loop.body):
            match node:
                case ast.Call(func=ast.Attribute(value=receiver, attr="set_epoch"), args=args, keywords=[]):
                    told = given_as(script, args[0]) if args else None
                    is_literal = told is None or (isinstance(told, ast.Constant) and isinstance(told.value, int))
                    is_told = dotted(receiver) in samplers or is_of_training(script, project, receiver, loop)
                    if is_literal and is_told and isinstance(loop.target, ast.Name):
                        yield in_loop(script, node, loop, ast.unparse(loop.target))


@lint
def told_by_an_attribute(script: Script, project: Around) -> Iterator[Finding]:
    """Look for an attribute of a trainer that nothing advances, and that a sampler is told in each epoch."""
    if script.frameworks:
        return
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(
                func=ast.Attribute(value=receiver, attr="set_epoch"),
                args=[ast.Attribute(value=ast.Name(id="self"), attr=name) as told],
            ) if is_a_sampler(receiver) and (epoch := epoch_of(script, call)):
                stores = stores_of(script, project, call, name)
                others = rf"(?<!\bself)\.{name}\s*[-+]?=(?!=)|\bself\.{name}\s*\+="
                if stores and all(map(is_at_the_beginning, stores)) and not project.says(others):
                    receives = script.code(call.func)
                    yield Finding(
                        f"{receives} is given self.{name} in each epoch, which nothing advances: all have one order",
                        (
                            script.seen(call, f"{receives}({epoch})"),
                            Evidence(ast.unparse(stores[0].node), "", f"{stores[0].file}:{stores[0].node.lineno}"),
                        ),
                        Fix("pass the number of the epoch", edits=(script.replaced(told, epoch),)),
                        script.place(call),
                    )
