"""One rank alone loads a checkpoint into a model that is wrapped already.

## What happens

DDP gives all ranks the weights of rank 0 once, when it wraps the model. What rank 0 loads afterwards, it has alone:
the others go on with the weights that they had. Gradients are averaged all the same, so nothing fails, and what is
trained is neither model. What the checkpoint says besides (the epoch, the best metric) is missing on the other ranks,
too.

## How to be sure

Compare a weight of two ranks after the load. The same comes of averaged weights (EMA) that one rank copies into the
model to save them, and does not take back. Reported in a source where the load stands behind a test that one rank
alone passes, the model was wrapped before, and nothing in reach broadcasts.

## How to mend it

Load on all ranks, with `map_location="cpu"`; or load on rank 0 before the model is wrapped.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/nn/parallel/distributed.py, `_sync_module_states`
in the constructor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, OTHER_RANKS, Ailment, Finding, Fix, Severity, given, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP856", Severity.ERROR)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for load_state_dict of a wrapped model, behind a test that one rank alone passes."""
    if script.frameworks:
        return
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=model, attr="load_state_dict")):
                bare = model.value if isinstance(model, ast.Attribute) and model.attr == "module" else model
                guard = script.one_rank_guard(call)
                wrap = script.wrap(bare) if guard is not None else None
                if guard is None or wrap is None or not wrap.sure or wrap.kind != "DistributedDataParallel":
                    continue
                if not _others_load(script, call) and not project.does(SHARED) and not _is_at_the_end(script, call):
                    yield Finding(
                        f"one rank alone loads {script.code(bare)}, which was wrapped in line {wrap.line}: the others "
                        "keep their weights",
                        (script.seen(call, "on all ranks, or before the model is wrapped"), script.seen(guard.test)),
                        Fix("load on all ranks, onto the CPU first", diff=MEND),
                        script.place(call),
                    )


COPIES = {"copy_to", "apply_shadow"}
"""Methods of averaged weights that write them into the model; ``restore`` takes them out again."""


@lint
def averaged_in_source(script: Script) -> Iterator[Finding]:
    """Look for averaged weights that one rank alone copies into the model in the midst of the training, and leaves."""
    if not any(each in script.text for each in COPIES) or "restore" in script.text:
        return
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(
                func=ast.Attribute(value=average, attr=method),
                args=[ast.Call(func=ast.Attribute(value=ast.Name() as model, attr="parameters"))],
            ) if method in COPIES:
                guard = script.one_rank_guard(call)
                loops = [each for each in script.tree.above(call) if isinstance(each, (ast.For, ast.While))]
                if guard is None or not any(map(script.learns, loops)) or not _is_shared(script, model):
                    continue
                yield Finding(
                    f"one rank alone copies the averaged weights into {model.id}, and trains on with them: the others "
                    "keep theirs",
                    (script.seen(call, "a copy of the model, or restored behind it"), script.seen(guard.test)),
                    Fix(
                        "keep the trained weights, and take them back when the averaged ones are saved",
                        diff=f"+{script.code(average)}.store({model.id}.parameters())\n {script.code(call)}\n"
                        f" ...  # save\n+{script.code(average)}.restore({model.id}.parameters())",
                    ),
                    script.place(call),
                )


def _is_shared(script: Script, model: ast.Name) -> bool:
    """Whether a variable holds what DDP wraps, or what Accelerate's prepare returns for it."""
    wrap = script.wrap(model)
    prepared = [each for each in script.nodes(ast.Call) if isinstance(each.func, ast.Attribute)]
    return (wrap is not None and wrap.sure) or any(
        each.func.attr == "prepare" and any(isinstance(arg, ast.Name) and arg.id == model.id for arg in each.args)
        for each in prepared
        if isinstance(each.func, ast.Attribute)
    )


SHARED = r"broadcast|sync_module_states|_sync_params|scatter"
MEND = '+state = torch.load(path, map_location="cpu")  # on all ranks\n+model.module.load_state_dict(state)'


def _is_at_the_end(script: Script, call: ast.Call) -> bool:
    """Whether a function has trained before it loads, and does not train any more: what it loads is looked at there."""
    function = script.function(call)
    around = [each for each in script.tree.above(call) if isinstance(each, ast.stmt)]
    own = [each for each in around if script.function(each) is function]
    if any(isinstance(each, (ast.For, ast.While)) and script.learns(each) for each in own):
        return False
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    for each in own:
        block = script.tree.block(each)
        before += block[: block.index(each)]
        after += block[block.index(each) + 1 :]
    return any(map(script.learns, before)) and not any(map(script.learns, after))


def _others_load(script: Script, call: ast.Call) -> bool:
    code = script.code(call.func)
    same = [each for each in script.nodes(ast.Call) if each is not call and script.code(each.func) == code]
    return any(guard.who(script.tree) == OTHER_RANKS for each in same for guard in script.guards(each))


@lint
def by_a_helper(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a function of the file that loads the model it is given, called by one rank with what is wrapped."""
    if script.frameworks - {"ray"} or not script.calls(*WRAPPERS):
        return
    for call in script.nodes(ast.Call):
        guard = script.one_rank_guard(call) if isinstance(call.func, ast.Name) else None
        function = script.names_function(call.func) if guard is not None else None
        if guard is None or function is None or _others_load(script, call) or _is_at_the_end(script, call):
            continue
        for place, parameter in enumerate(function.args.args):
            model = given(call, place, parameter.arg)
            wrapped = _wrapped_before(script, call, model) if isinstance(model, ast.Name) else None
            if wrapped is None or not _loads(script, function, parameter.arg) or _is_handed_out(script, project):
                continue
            yield Finding(
                f"one rank alone loads {script.code(model or call)}, which was wrapped in line {wrapped.lineno}: the "
                "others keep their weights",
                (script.seen(call, "on all ranks, or before the model is wrapped"), script.seen(guard.test)),
                Fix("load on all ranks, onto the CPU first", diff=f"-{script.code(guard.test)}"),
                script.place(call),
            )


WRAPPERS = (DDP, "ray.train.torch.prepare_model")
HANDED_OUT = r"sync_module_states|_sync_params|scatter"


def _wrapped_before(script: Script, call: ast.Call, model: ast.Name) -> ast.Call | None:
    """Return the call that wraps what a variable holds at a call, of the same function, on every way to it."""
    for wrap in script.calls(*WRAPPERS):
        statement = script.tree.statement(wrap)
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == model.id and value is wrap:
                is_near = script.function(wrap) is script.function(call) and wrap.lineno < call.lineno
                if is_near and not script.guards(wrap):
                    return wrap
    return None


def _loads(script: Script, function: ast.FunctionDef, name: str) -> bool:
    """Whether a function loads the model that a parameter holds: itself, or by a name for it or its ``module``."""
    held = {name}
    for node in script.inside(*function.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=other)], value=value) if held & _models(value):
                held.add(other)
            case ast.Call(func=ast.Attribute(attr="load_state_dict", value=model)) if held & _models(model):
                return True
    return False


def _models(value: ast.expr) -> set[str]:
    """Return the variables of which an expression is one, or the ``module`` of one."""
    match value:
        case ast.Name(id=name):
            return {name}
        case ast.Attribute(value=inner, attr="module"):
            return _models(inner)
        case ast.IfExp(body=one, orelse=other):
            return _models(one) | _models(other)
    return set()


def _is_handed_out(script: Script, project: Around) -> bool:
    """Whether something gives all ranks what one has; numbers alone, of which a tensor is made, are not the weights."""
    if project.does(HANDED_OUT) or any(True for _ in project.trees("broadcast")):
        return True
    calls = script.calls("torch.distributed.broadcast")
    names = [each for each in script.nodes(ast.Attribute) if "broadcast" in each.attr]
    names_alone = [each for each in script.nodes(ast.Name) if "broadcast" in each.id]
    if len(names) + len(names_alone) > len(calls):
        return True
    sent = [script.value(each.args[0]) if each.args else None for each in calls]
    return any(not isinstance(each, ast.Call) or script.resolve(each.func) != "torch.tensor" for each in sent)
