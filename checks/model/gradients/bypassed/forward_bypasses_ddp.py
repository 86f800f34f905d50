"""The forward bypasses DistributedDataParallel, so that gradients are never averaged.

## What happens

DDP arranges the averaging of gradients in the forward of its wrapper. A loss that is computed with `model.module(x)`,
with a method behind `.module`, or with the bare model that was kept under another name trains each rank on its own
data alone: no error, no hang, as many different models as there are ranks, of which one is saved.

## How to be sure

Right before `optimizer.step()` the norm of a parameter's gradient differs between the ranks, and the
wrapper was not called since the step before. ddpdoctor compares both in the first steps.

In a source (`ddpdoctor lint`): what `model.module(...)` returns flows into `backward()`, the model is wrapped there on
every way, and the function never calls the wrapped model; or the bare model's does, and its wrapper, under another
name, is called nowhere; or what is wrapped is a container of the model's layers (diffusers' `AttnProcsLayers`, a
`ModuleList`), while the model is called; or `model = model.module` takes the wrapper off as soon as it is made.

## How to mend it

Call the wrapper, `model(x)`. What a method other than forward computes goes into forward.

Silent where a communication hook or the script itself exchanges gradients or parameters, and in evaluation.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel", and
its forward in torch/nn/parallel/distributed.py, which calls prepare_for_backward; of `AttnProcsLayers`:
https://github.com/huggingface/diffusers/issues/4046
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Bypassed,
    Evidence,
    Finding,
    Fix,
    Severity,
    StepFingerprinted,
    StepSampled,
    Training,
    by_parameter,
    lint,
    place,
    watch,
)

from ...._frameworks.accelerate import is_of_several_processes
from ...._ledgers.ledger import have_parted, sheet
from ..._training import bypasses, gradients_apart, line, together
from ._asked import is_for_one_process, wrapping
from ._bypassed import EXCHANGES, averages_weights, bared, called_past, is_of_parts, mend
from ._parts import parts_wrapped
from ._thrown_away import OF_GRADIENTS, thrown_away
from ._to_backward import backward_of, is_call_of, is_without_gradients
from ._wrappers import is_only_asked, wrappers

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP560", Severity.ERROR)
SURE = 2  # steps: what happens in the first alone is some warming up


@watch(StepSampled)
def while_training(event: StepSampled, training: Training) -> Iterator[Finding]:
    """Compare gradients of a step before which nobody called the wrapper."""
    step = together(event, training)
    if step is None or step.number < SURE or not bypasses(step):
        return
    if step.by_own_means and not _exchanges_in_forward(event, training):
        return
    site = line(Bypassed, step, training)
    if averages_weights(site):
        return
    if apart := gradients_apart(step):
        yield Finding(
            "the forward bypasses DistributedDataParallel: each rank trains a model of its own",
            (
                apart.evidence("the gradient of", step),
                Evidence(
                    f"no forward through the wrapper since step {step.number - 1}", "one or more", "on every rank"
                ),
                Evidence(f"{step.wrapped.kind} is wrapped", "", str(step.wrapped.site)),
            ),
            called_past(site, training.framework),
            place(site),
        )


def _exchanges_in_forward(event: StepSampled, training: Training) -> bool:
    """Whether all that the script exchanges goes out with the loss, and the weights part all the same.

    Features are gathered there, as losses that compare samples do; whoever averages weights makes them equal.
    """
    told = training.of(StepFingerprinted, pid=event.pid, optimizer=event.optimizer)
    steps = [found for each in told if each.number > 1 and (found := sheet(each, training)) is not None]
    return len(steps) >= SURE and all(
        have_parted(each)
        and not each.is_parallel_otherwise
        and not any(one.hooks for one in each.ranks.values())
        and all(
            one.when in {"before backward", "in backward"} for rank in each.ranks.values() for one in rank.exchanges
        )
        and all(line.own for line in each.lines_that_tell)
        for each in steps
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a backward of what ``model.module(...)`` returned, in a loop that never calls the wrapped model."""
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=model, attr="module")):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=model, attr="module"), attr="forward")):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=model, attr="module"), attr=method)):
                if is_of_parts(script, call, method):
                    continue
            case _:
                continue
        made = wrapping(script, model)
        if made is None:
            continue
        wrap, wrapper = made
        around = script.function(call) or script.module
        name = script.code(model)
        wrapped = any(
            is_call_of(node, name) and not is_for_one_process(script, node, name) for node in ast.walk(around)
        )
        backward = None if wrapped or is_without_gradients(script, call) else backward_of(script, call, around)
        if backward is not None:
            yield Finding(
                f"{script.code(call.func)} goes past {wrapper}: gradients are not averaged",
                (script.seen(call, f"{script.code(model)}(...)"), script.seen(wrap), script.seen(backward)),
                mend(script, call, model),
                script.place(call),
            )


@lint
def by_another_name(script: Script) -> Iterator[Finding]:
    """Look for ``bare = model.module if isinstance(model, DistributedDataParallel) else model``, which is trained."""
    for call in script.nodes(ast.Call):
        model = bared(script, call.func)
        wrap = script.wrap(model) if model is not None else None
        if (
            model is None
            or wrap is None
            or wrap.kind != "DistributedDataParallel"
            or is_without_gradients(script, call)
        ):
            continue
        around, name = script.function(call) or script.module, script.code(model)
        if re.search(OF_GRADIENTS, script.text) or any(is_call_of(node, name) for node in ast.walk(around)):
            continue
        if (backward := backward_of(script, call, around)) is not None:
            bare = script.code(call.func)
            yield Finding(
                f"{bare} is {name}.module where {name} is wrapped: its gradients are not averaged",
                (script.seen(call, f"{name}(...)"), script.seen(wrap.call), script.seen(backward)),
                Fix("call the wrapped model", edits=(script.replaced(call.func, name),)),
                script.place(call),
            )


@lint
def handed_on(script: Script) -> Iterator[Finding]:
    """Look for ``model.module`` that a function of the project calls, and whose result goes backward."""
    for call in script.nodes(ast.Call):
        found = script.defined(call.func)
        if found is None or not isinstance(found[1], ast.FunctionDef):
            continue
        for parameter, value in by_parameter(found[1], call).items():
            if not isinstance(value, ast.Attribute) or value.attr != "module":
                continue
            calls = [each for each in ast.walk(found[1]) if is_call_of(each, parameter)]
            made, name = wrapping(script, value.value), script.code(value.value)
            around = script.function(call) or script.module
            if made is None or not calls or any(is_call_of(node, name) for node in ast.walk(around)):
                continue
            backward = None if is_without_gradients(script, call) else backward_of(script, call, around)
            if backward is not None:
                yield Finding(
                    f"{script.code(call.func)} is given {name}.module, and calls it past {made[1]}: gradients are not "
                    "averaged",
                    (script.seen(value, name), script.seen(made[0]), script.seen(backward)),
                    Fix("hand the wrapped model on", edits=(script.replaced(value, name),)),
                    script.place(call),
                )


@lint
def beside_the_wrapper(script: Script) -> Iterator[Finding]:
    """Look for a training of the model itself whose wrapper has another name, and is never called or handed on."""
    for wrap, wrapper, bare in wrappers(script):
        if not isinstance(bare, ast.Name) or bare.id == wrapper or not is_only_asked(script, wrapper):
            continue
        if re.search(EXCHANGES, script.text) or not script.is_bound_once(wrapper):
            continue
        around = script.function(wrap) or script.module
        for call in script.inside(around):
            if not isinstance(call, ast.Call) or not is_call_of(call, bare.id) or call.lineno < wrap.lineno:
                continue
            if _is_bound_again(script, bare, wrap) or is_without_gradients(script, call):
                continue
            if (backward := backward_of(script, call, around)) is not None:
                yield Finding(
                    f"{bare.id} is trained itself, beside its wrapper {wrapper}: gradients are not averaged",
                    (script.seen(call, f"{wrapper}(...)"), script.seen(wrap), script.seen(backward)),
                    Fix("call the wrapped model", edits=(script.replaced(call.func, wrapper),)),
                    script.place(call),
                )
                break


@lint
def of_its_parts(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a container of the model's layers that is wrapped in its place: nothing calls that, but the model."""
    if re.search(EXCHANGES, script.text) or (not script.joins and not is_of_several_processes(script, project)):
        return
    for wrap, container, model, forward, backward in parts_wrapped(script):
        yield Finding(
            f"what is wrapped is a container of {model}'s layers, and {model} is called, which is not: gradients are "
            "not averaged",
            (
                script.seen(wrap, f"{model} in its place"),
                script.seen(container),
                script.seen(forward),
                script.seen(backward),
            ),
            Fix(f"wrap {model}, whose other parameters are frozen, and call that"),
            script.place(wrap),
        )


@lint
def taken_off(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a wrapper that is taken off before anything called it, in a training."""
    if not project.says(r"\.backward\(") or project.does(OF_GRADIENTS):
        return
    for wrap, off in thrown_away(script):
        model = script.code(off.value) if off.value is not wrap else "DistributedDataParallel(...)"
        yield Finding(
            f"{model}.module takes the wrapper off again: nothing calls it, and gradients are not averaged",
            (script.seen(off, "the wrapper, kept and called"), script.seen(wrap)),
            Fix("keep the wrapper, and call it", diff=f"-{script.code(script.tree.statement(off) or off)}"),
            script.place(off),
        )


def _is_bound_again(script: Script, name: ast.Name, wrap: ast.Call) -> bool:
    return any(each.line > wrap.lineno for each in script.tree.lookup(name.id, name))
