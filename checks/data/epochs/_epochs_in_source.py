"""Samplers that the source gives to loaders, and never tells the epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Finding,
    Fix,
    dotted,
    keyword,
)

from ..._frameworks.ray import training_functions
from ..._scripts.evaluation import is_evaluation
from ..._scripts.source import LOADER, SAMPLER, given_to, is_shuffled, iterated, shuffling_samplers, target, uses

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script


MEND = Fix(
    "tell this loader's sampler the epoch, first thing in the loop over epochs",
    diff=" for epoch in range(epochs):\n+    loader.sampler.set_epoch(epoch)\n     for batch in loader:",
)
TELLS = r"(?<!def )(?<!dataset\.)set_epoch"
REORDERS = r"\.(?:re)?shuffle\w*\([^)\n]*\bepoch"
"""What gives the data set itself another order in each epoch."""
"""What can tell a sampler its epoch: neither a method that nobody calls, nor one that a data set has for itself."""
DISTRIBUTED = "DistributedSampler"


def has_others(script: Script) -> bool:
    """Whether the file makes loaders of its own, none of which can get the sampler by other ways."""
    return bool(script.calls(LOADER)) and "locals()" not in script.text


OF_GRADIENTS = frozenset({"deepspeed", "horovod"})
"""Frameworks that never see a loader which they are not handed."""


def of_flow(script: Script, call: ast.Call, loop: ast.For | ast.While | None) -> Finding:
    match loop:
        case ast.For(target=ast.Name(id=count)) if "epoch" in count.lower():
            right = f"sampler.set_epoch({count}) in the loop over epochs"
        case _:
            right = "sampler.set_epoch(epoch), another number before each pass"
    seen = (script.seen(call, right),)
    return Finding(
        "each epoch has the same order: set_epoch is never called",
        seen if loop is None else (*seen, script.seen(loop)),
        MEND,
        script.place(call),
    )


def by_all_loaders(script: Script) -> Iterator[Finding]:
    """Look for a training whose loaders all have such a sampler, wherever they are handed."""
    loaders, samplers = script.calls(LOADER), [*script.calls(SAMPLER)]
    shuffling = [each for each in samplers if is_shuffled(script, each)]
    fed = [each for each in samplers if given_to(script, each) or target(script, each)]
    training = shuffling if len(loaders) == 1 else [each for each in shuffling if _is_for_training(script, each)]
    if not loaders or len(loaders) != len(samplers) or fed != samplers or len(training) != 1:
        return
    if any(_is_never_read(script, each) for each in loaders):
        return
    loop = next((each for each in script.epoch_loops() if script.learns(each)), None)
    function = script.function(training[0])
    if loop is not None and (function is None or script.sites(function)):
        yield Finding(
            "each epoch has the same order: set_epoch is never called",
            (
                script.seen(training[0], f"sampler.set_epoch({ast.unparse(loop.target)}) in the loop over epochs"),
                script.seen(loop),
            ),
            MEND,
            script.place(training[0]),
        )


def _is_never_read(script: Script, loader: ast.Call) -> bool:
    """Whether the file makes a loader and leaves it at that: the batches come from elsewhere."""
    name = target(script, loader)
    return name is not None and "." not in name and not script.tree.read.get(name)


def are_others_told(script: Script, project: Around, call: ast.Call) -> bool:
    """Whether each call of set_epoch there is tells a variable that only ever holds other samplers of this file."""
    own = target(script, call)
    calls = [each for each in script.nodes(ast.Attribute) if each.attr == "set_epoch"]
    if own is None or project.others_say("set_epoch") or len(calls) != script.text.count("set_epoch"):
        return False
    told = {dotted(each.value) or "" for each in calls}
    made = {each: target(script, each) for each in script.calls(SAMPLER)}
    given = [each for each in script.nodes(ast.Assign) if any(dotted(one) in told for one in each.targets)]
    return (
        own not in told
        and told <= set(made.values())
        and all(each.value in made for each in given)
        and not any(each.attr == "epoch" and isinstance(each.ctx, ast.Store) for each in script.nodes(ast.Attribute)
                    if dotted(each.value) == own)
    )  # fmt: skip


def _is_for_training(script: Script, sampler: ast.Call) -> bool:
    return "train" in (target(script, sampler) or "").lower() + " ".join(map(script.code, sampler.args[:1])).lower()


def by_names(script: Script) -> Iterator[Finding]:
    """Follow a loader by its name, from its sampler into the loop over epochs."""
    for sampled in shuffling_samplers(script):
        for name in sampled.loaders:
            for loop in script.epoch_loops():
                if any(script.function(use) is script.function(loop) for use in uses(script, name, sampled.call)):
                    inner = iterated(script, name, loop)
                    if inner is not None and not is_evaluation(script, name, inner):
                        edit = script.line_before(loop.body[0], f"{sampled.name}.set_epoch({ast.unparse(loop.target)})")
                        yield Finding(
                            f"each epoch of {name} has the same order: {sampled.name}.set_epoch is never called",
                            (
                                script.seen(sampled.call, f"{sampled.name}.set_epoch(epoch) in the loop over epochs"),
                                script.seen(loop),
                                script.seen(inner),
                            ),
                            Fix("tell the sampler the epoch, first thing in the loop over epochs", edits=(edit,)),
                            script.place(sampled.call),
                        )
                        break


PREPARES = ("ray.train.torch.prepare_data_loader", "ray.train.torch.train_loop_utils.prepare_data_loader")
OF_RAY = Fix(
    "tell the sampler that prepare_data_loader has put in the epoch, first thing in the loop over epochs",
    diff=" for epoch in range(epochs):\n+    if ray.train.get_context().get_world_size() > 1:\n"
    "+        loader.sampler.set_epoch(epoch)\n     for batch in loader:",
)


def by_ray(script: Script) -> Iterator[Finding]:
    """Follow a loader that Ray Train has shared out into the loop over epochs of the function that the workers run."""
    for function in training_functions(script):
        loaders = [each for each in script.calls(LOADER) if script.function(each) is function]
        for call in (each for each in script.calls(*PREPARES) if script.function(each) is function and each.args):
            name, handed = target(script, call), call.args[0]
            made = [each for each in loaders if each is handed or target(script, each) == ast.unparse(handed)]
            shuffles = [keyword(each, "shuffle") for each in made]
            if name is None or len(made) != 1 or not (isinstance(shuffles[0], ast.Constant) and shuffles[0].value):
                continue
            for loop in script.epoch_loops():
                inner = iterated(script, name, loop) if script.function(loop) is function else None
                if inner is not None and script.learns(inner) and not is_evaluation(script, name, inner):
                    yield Finding(
                        f"each epoch of {name} has the same order: its sampler's set_epoch is never called",
                        (script.seen(call, f"{name}.sampler.set_epoch({ast.unparse(loop.target)})"), script.seen(loop)),
                        OF_RAY,
                        script.place(call),
                    )
