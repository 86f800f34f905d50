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
    last_name,
    lint,
    place,
    probe,
    watch,
)

from ..._scripts.evaluation import EVALUATION
from ..._scripts.source import SAMPLER, shuffling_samplers
from .._passes import repeated
from .._words import shown
from ._stored_epoch import is_at_the_beginning, stores_of

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
                    told = _given(script, args[0]) if args else None
                    is_literal = told is None or (isinstance(told, ast.Constant) and isinstance(told.value, int))
                    is_told = dotted(receiver) in samplers or _is_of_training(script, project, receiver, loop)
                    if is_literal and is_told and isinstance(loop.target, ast.Name):
                        yield _in_loop(script, node, loop, ast.unparse(loop.target))


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
            ) if _is_a_sampler(receiver) and (epoch := _epoch_of(script, call)):
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


def _is_a_sampler(receiver: ast.expr) -> bool:
    name = (dotted(receiver) or "").rpartition(".")[2]
    return name.endswith("sampler") and not EVALUATION.search(dotted(receiver) or "")


def _epoch_of(script: Script, call: ast.Call) -> str:
    """Return the name that the number of the epoch has at a call: of the loop around it, or of the one that calls it.

    Empty where there is none, or where another call of set_epoch follows in the same function.
    """
    function, owner = script.function(call), script.tree.class_of(call)
    if not isinstance(function, ast.FunctionDef) or owner is None:
        return ""
    later = [
        each
        for each in ast.walk(function)
        if isinstance(each, ast.Call) and last_name(each.func) == "set_epoch" and each.lineno > call.lineno
    ]
    given = [each.arg for each in function.args.args[1:]]
    loops = [each for each in ast.walk(owner) if isinstance(each, ast.For) and "range" in ast.unparse(each.iter)]
    for loop in loops if not later else ():
        if any(each is loop for each in script.tree.above(call)):
            return ast.unparse(loop.target) if isinstance(loop.target, ast.Name) else ""
        for each in ast.walk(loop):
            handed = isinstance(each, ast.Call) and ast.unparse(each.func) == f"self.{function.name}" and each.args
            if handed and ast.unparse(handed[0]) == ast.unparse(loop.target) and given:
                return given[0]
    return ""


def _given(script: Script, node: ast.expr) -> ast.expr:
    """Return what a local variable is given, where that is one thing; of anything else, the expression itself."""
    bindings = script.tree.lookup(node.id, node) if isinstance(node, ast.Name) else []
    held = bindings[0].value if len(bindings) == 1 else None
    return held if held is not None else node


def _is_of_training(script: Script, project: Around, receiver: ast.expr, loop: ast.For) -> bool:
    """Whether a receiver is the shuffling sampler of a loader from which the loop learns, made in another file."""
    name = dotted(receiver) or ""
    if not name.endswith(".sampler") or EVALUATION.search(name) or script.calls(SAMPLER) or script.frameworks:
        return False
    return script.learns(loop) and project.says("DistributedSampler") and not project.says(TOLD_TO_SHUFFLE)


TOLD_TO_SHUFFLE = r"DistributedSampler\([^)]*shuffle|class\s+\w*DistributedSampler"
"""What leaves open whether a sampler shuffles, or is another one than torch's."""


def _in_loop(script: Script, call: ast.Call, loop: ast.For, epoch: str) -> Finding:
    receiver = script.code(call.func)
    said = f"{receiver} is called without the epoch, which is a TypeError"
    if call.args:
        said = f"{receiver} is given {script.code(call.args[0])} in each epoch, so that all have the same order"
    return Finding(
        said,
        (script.seen(call, f"{receiver}({epoch})"), script.seen(loop)),
        Fix("pass the number of the epoch", edits=(script.replaced(call, f"{receiver}({epoch})"),)),
        script.place(call),
        severity=None if call.args else Severity.ERROR,
    )
