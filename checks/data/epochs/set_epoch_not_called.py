"""Every epoch has the same order, because set_epoch is never called.

## What happens

A DistributedSampler shuffles with a generator that it seeds anew with `seed + epoch`. Only the training script can
tell it the epoch. Without `sampler.set_epoch(epoch)` each epoch repeats the order of the first, so that each rank
sees the same share in the same batches in every epoch. Nothing fails; the model gets worse than it could.

## How to be sure

Print the first indices of two epochs. ddpdoctor reads two epochs from the sampler, then two after set_epoch(1) and
set_epoch(2), and looks for the call in the sources.

In a running training (`ddpdoctor run`), ddpdoctor reports two epochs for training that had one shuffled order, where
the first of them ran to its end, and set_epoch was not called on the sampler in between; where the sampler was made
anew for each, three epochs.

Reported only when the plain epochs are the same, set_epoch does change the order, and neither the target's file nor
what it imports from the same project says set_epoch, nor a framework that calls it itself (Lightning, Accelerate, the
Trainer of transformers and others). Where these files hold no loop over epochs the loop is elsewhere, and it
is a note.

## How to mend it

Call `sampler.set_epoch(epoch)` as the first line of the loop over epochs.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.utils.data.distributed.DistributedSampler", the warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    EpochSet,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    NotRun,
    OrderSeen,
    Severity,
    Training,
    keyword,
    lint,
    loop_at,
    place,
    probe,
    watch,
)

from ..._scripts.source import (
    SAMPLER,
    is_own,
    is_reseeded,
    is_shuffled,
    target,
)
from .._lines import epoch_loop
from .._passes import repeated
from .._words import at, shown, told_epoch
from ._epochs_in_source import (
    DISTRIBUTED,
    MEND,
    OF_GRADIENTS,
    REORDERS,
    TELLS,
    are_others_told,
    by_all_loaders,
    by_names,
    by_ray,
    has_others,
    of_flow,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Around, LoaderExam, Script

AILMENT = Ailment("DDP604", Severity.WARNING)


@probe
def by_two_epochs(loader: LoaderExam) -> Iterator[Finding]:
    """Compare epochs, then look for the call."""
    ranks, source = loader.indexed(), loader.source
    sampler = ranks[0].sampler
    if sampler is None or not sampler.has_set_epoch:
        raise NotRun("no sampler that takes an epoch")
    repeats = all(rank.repeats for rank in ranks)
    reacts = any(rank.reacts for rank in ranks)
    if not (repeats and reacts) or source.mentions_set_epoch or loader.for_evaluation:
        return
    if source.frameworks:
        raise NotRun(f"{source.frameworks[0]}, which the training imports, calls set_epoch by itself")
    if source.epoch_loop is None and (source.elsewhere or not source.files):
        raise NotRun(f"the loop over epochs is not in {loader.file or loader.target}")
    evidence = [
        Evidence(f"the first two epochs both begin {shown(ranks[0].order.indices)}", "two orders", "rank 0's sampler"),
        Evidence(f"after set_epoch(1): {shown(ranks[0].told[0].indices)}", "", "rank 0's sampler"),
        Evidence(f"no set_epoch in {', '.join(source.files[:4])}", "sampler.set_epoch(epoch)", "sources"),
    ]
    if source.commented:
        evidence.append(Evidence(source.commented, "that line, without the comment sign", "sources"))
    ambiguity = None
    if source.epoch_loop is None:
        ambiguity = Ambiguity(
            ("set_epoch is never called", "it is called in a file that this one does not import"),
            "grep -rn set_epoch --include='*.py' .",
        )
    yield Finding(
        f"every epoch repeats the order of the first: nobody calls {sampler.kind}.set_epoch",
        tuple(evidence),
        Fix(
            "tell the sampler each epoch",
            diff=" for epoch in range(epochs):\n+    loader.sampler.set_epoch(epoch)\n     for batch in loader:",
        ),
        at(loader, sampler=True),
        severity=Severity.NOTE if ambiguity else None,
        ambiguity=ambiguity,
    )


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the order of an epoch with that of the epoch before, where nobody told this sampler the epoch."""
    last, this = repeated(event, training) or (None, None)
    if this is None or last is None or this.sampler is None or last.sampler is None:
        return
    sampler = this.sampler
    if not sampler.shuffle or sampler.kind != DISTRIBUTED or last.sampler.epoch != sampler.epoch:
        return
    calls = training.of(EpochSet, pid=event.pid)
    if any(call.sampler in {sampler.number, last.sampler.number} for call in calls):
        return  # with the same number: another check's
    called = (
        Evidence(f"set_epoch({calls[-1].epoch}) on another sampler", "on this loader's", str(calls[-1].site))
        if calls
        else Evidence("set_epoch is not called", "a call in each epoch", f"rank {event.rank}")
    )
    yield Finding(
        f"every epoch has the same order: set_epoch is {'called on another sampler' if calls else 'never called'}",
        (
            Evidence(
                f"epochs {last.order.number} and {event.number} both begin {shown(event.indices)}",
                "two orders",
                f"rank {event.rank}",
            ),
            Evidence(f"the sampler's epoch is {sampler.epoch} in both", "another in each", f"the loop of {event.site}"),
            called,
        ),
        told_epoch(training, _called_on(this.started)),
        place(calls[-1].site if calls and calls[-1].site else epoch_loop(this.started) or event.site),
    )


def _called_on(started: EpochStarted) -> Fix:
    """Return the call that tells a loader's sampler the epoch, by the name of the loader and where it is held."""
    held = started.sampler.held_as if started.sampler else "sampler"
    loader = (loop_at(started.site.file, started.site.line) if started.site else "") or "loader"
    return Fix(
        MEND.summary,
        diff=f" for epoch in range(epochs):\n+    {loader}.{held}.set_epoch(epoch)\n     for batch in {loader}:",
    )


@lint
def on_another_sampler(script: Script) -> Iterator[Finding]:
    """Look for a sampler that is told each epoch, and that no loader has."""
    for call in script.calls(SAMPLER) if is_own(script) else ():
        name = target(script, call)
        reads = script.tree.read.get(name or "", [])
        told = [parent for each in reads if isinstance(parent := script.tree.parents[each], ast.Attribute)]
        if name is None or "." in name or not reads or len(told) != len(reads) or not is_shuffled(script, call):
            continue
        if all(each.attr == "set_epoch" for each in told) and script.is_bound_once(name) and has_others(script):
            yield Finding(
                f"set_epoch is called on {name}, which no loader has: the order of the batches stays the same",
                (script.seen(told[0], "the sampler of the loader"), script.seen(call)),
                Fix("tell the sampler that the loader was given", diff="+loader.sampler.set_epoch(epoch)"),
                script.place(told[0]),
            )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loop over epochs that goes through a loader whose sampler is never told the epoch."""
    if script.frameworks - OF_GRADIENTS or not script.calls(SAMPLER) or project.does(TELLS) or project.does(REORDERS):
        return
    if all(_is_without_group(script, each) for each in script.calls(SAMPLER)):
        return
    unknown = bool(project.unknown() or script.frameworks)
    found = [] if unknown else [*by_names(script)]
    told = {(each.place.line, each.place.column) for each in found}
    for call in script.calls(SAMPLER):
        place = script.place(call)
        learned = script.learned(call) if is_shuffled(script, call) and not is_reseeded(script, call) else None
        if learned is None or (unknown and learned[1]) or (place.line, place.column) in told:
            continue
        found.append(of_flow(script, call, learned[0]))
    others = [each for each in script.calls(SAMPLER) if _is_of_dummies(script, each) or _is_without_group(script, each)]
    left = {script.place(each).line for each in others}
    for each in found or ([] if unknown else by_all_loaders(script)):
        if each.place.line not in left:
            yield each


DUMMIES = re.compile(r"dummy|dummies|synthetic|fake|random", re.IGNORECASE)
DRAWN = re.compile(r"torch\.(?:rand|randn|randint|empty|zeros|ones)$")


def _is_of_dummies(script: Script, sampler: ast.Call) -> bool:
    """Whether a function that says so by its name shares out numbers that it has drawn: their order says nothing."""
    function = script.function(sampler)
    data = script.held(sampler.args[0]) if sampler.args and isinstance(sampler.args[0], ast.Name) else None
    if not isinstance(function, ast.FunctionDef) or not DUMMIES.search(function.name):
        return False
    if not isinstance(data, ast.Call) or script.resolve(data.func) != "torch.utils.data.TensorDataset":
        return False
    made = [script.value(each) for each in data.args]
    return all(isinstance(each, ast.Call) and DRAWN.match(script.resolve(each.func) or "") for each in made)


def _is_without_group(script: Script, sampler: ast.Call) -> bool:
    """Whether a sampler is made on the way of one process alone, which has no group to ask: it raises at once."""
    return any(each.is_alone(script.tree) for each in script.guards(sampler))


@lint
def while_others_are_told(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a sampler of a training that is never told the epoch, where others of the file are."""
    if script.frameworks - OF_GRADIENTS or not project.does(TELLS) or project.does(REORDERS):
        return
    for call in script.calls(SAMPLER):
        learned = script.learned(call) if is_shuffled(script, call) and not is_reseeded(script, call) else None
        if learned is not None and not learned[1] and are_others_told(script, project, call):
            yield of_flow(script, call, learned[0])


@lint
def of_own_class(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a sampler of a class of the project that shuffles by its epoch, and that is never told it."""
    if script.frameworks - OF_GRADIENTS or project.does(TELLS) or project.does(REORDERS):
        return
    for call in script.nodes(ast.Call):
        own = script.own_sampler(call)
        shuffle = keyword(call, "shuffle") if own is not None else None
        if own is None or not isinstance(shuffle, ast.Constant) or not shuffle.value or not _draws_by_epoch(own):
            continue
        learned = script.learned(call)
        if learned is not None and not learned[1]:
            yield of_flow(script, call, learned[0])


def _draws_by_epoch(owner: ast.ClassDef) -> bool:
    """Whether the order of a sampler is drawn by the epoch that ``set_epoch`` of torch's class tells it."""
    methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}
    drawn = methods.get("__iter__")
    is_drawn = drawn is None or re.search(r"\bmanual_seed\([^\n]*self\.epoch\b", ast.unparse(drawn)) is not None
    return is_drawn and "set_epoch" not in methods


@lint
def of_ray_train(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loader that Ray Train has given a sampler, which is never told the epoch."""
    if not project.does(TELLS):
        yield from by_ray(script)
