"""Methods of a bare model that are called past its wrapper, and what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, Fix, calls_at, resolve, tree_of

from ...._scripts.own_files import is_said

if TYPE_CHECKING:
    from ddpdoctor.check import Framework, Script, Site, Tree

PLAIN = "-loss = criterion(model.module(inputs), targets)\n+loss = criterion(model(inputs), targets)"
EXCHANGES = r"all_reduce|allreduce|average_grad|sync_grad(?!ients\b)|reduce_grad"
"""What says that the script exchanges gradients itself; ``sync_gradients`` only says when Accelerate does."""

OF_WEIGHTS = re.compile(
    r"\b(?:all_?reduce|broadcast|all_gather)\w*\(\s*(?:tensor=)?[\w.\[\]]*\.data\b|\baverage_param\w*\("
    r"|\bparameters_to_vector\(",
    re.IGNORECASE,
)


def averages_weights(site: Site | None) -> bool:
    """Whether the file of a training can average weights by hand (local SGD): in between they part as meant."""
    return site is None or is_said(OF_WEIGHTS, (site.file,))


def mend(script: Script, call: ast.Call, model: ast.expr) -> Fix:
    """Return an edit that calls the wrapper; of another method than forward, what to write there."""
    function = call.func
    is_forward = isinstance(function, ast.Attribute) and function.attr in {"module", "forward"}
    if is_forward:
        return Fix("call the wrapped model", edits=(script.replaced(function, script.code(model)),))
    name = function.attr if isinstance(function, ast.Attribute) else ""
    return Fix(
        f"let forward do what {name} does, and call the wrapped model",
        diff=f"+def forward(self, *args, **kwargs):\n+    return self.{name}(*args, **kwargs)\n"
        f"-{script.code(function)}(...)\n+{script.code(model)}(...)",
    )


def called_past(site: Site | None, framework: Framework | None) -> Fix:
    """Return how a line calls the wrapper and not what is in it; where that was compiled, the wrapper is."""
    compiled = next(_compiled(site), "") if site else ""
    if compiled:
        return Fix("compile the wrapper, not what is in it", diff=compiled)
    return Fix("call the wrapper, not what is in it", diff=framework.call if framework and framework.call else PLAIN)


def _compiled(site: Site) -> Iterator[str]:
    """Yield for what a line calls, and the file has compiled, how the wrapper is compiled."""
    tree = tree_of(site.file)
    held = {ast.unparse(target): each for each in tree.of(ast.Assign) for target in each.targets}
    for call in calls_at(site.file, site.line):
        match held.get(name := ast.unparse(call.func)):
            case ast.Assign(value=ast.Call(func=made, args=[inner, *_])) if resolve(tree, made) == "torch.compile":
                if wrapper := _wrapper_of(tree, inner):
                    yield f"-{name} = torch.compile({ast.unparse(inner)})\n+{name} = torch.compile({wrapper})"


def _wrapper_of(tree: Tree, inner: ast.expr) -> str:
    """Return what wraps a model that was compiled; empty where that is not seen."""
    if isinstance(inner, ast.Attribute) and inner.attr == "module":
        return ast.unparse(inner.value)
    code = ast.unparse(inner)
    for each in tree.of(ast.Assign):
        match each:
            case ast.Assign(targets=[target], value=ast.Call(func=made, args=[given, *_])):
                if resolve(tree, made) == DDP and ast.unparse(given) == code:
                    return ast.unparse(target)
    return ""


def bared(script: Script, called: ast.expr) -> ast.expr | None:
    """Return the model whose ``module`` a variable holds where that is wrapped, and which it holds itself elsewhere."""
    match script.held(called) if isinstance(called, ast.Name) else None:
        case ast.IfExp(body=ast.Attribute(value=model, attr="module"), orelse=bare):
            pass
        case ast.IfExp(body=bare, orelse=ast.Attribute(value=model, attr="module")):
            pass
        case ast.Call(func=ast.Name(id="getattr"), args=[model, ast.Constant(value="module"), bare]):
            pass
        case _:
            return None
    return model if ast.unparse(model) == ast.unparse(bare) else None


ASK = frozenset({"hasattr", "isinstance", "getattr", "print", "id"})
"""Functions that are handed a model and call none."""


def is_of_parts(script: Script, call: ast.Call, method: str) -> bool:
    """Whether a method of the bare model can compute the loss without parameters, from what a wrapped model returned.

    Where its function has called no wrapped model before, and handed none on, the forward is in the method.
    """
    around = script.function(call)
    if around is None or re.search(EXCHANGES, ast.unparse(around)) or method in GIVES_NO_LOSS:
        return True
    if "all_reduce" in script.text and re.search(r"\.grad\b", script.text):
        return True  # it averages the gradients by hand
    for node in script.inside(around):
        if not isinstance(node, ast.Call) or node is call or node.lineno > call.lineno:
            continue
        if isinstance(node.func, (ast.Name, ast.Attribute)) and script.wrap(node.func) is not None:
            return True
        if isinstance(node.func, ast.Name) and node.func.id in ASK:
            continue
        if any(isinstance(each, (ast.Name, ast.Attribute)) and script.wrap(each) is not None for each in node.args):
            return True
    return not _takes_batches(script, call)


GIVES_NO_LOSS = frozenset("parameters named_parameters state_dict modules named_modules buffers children".split())


def _takes_batches(script: Script, call: ast.Call) -> bool:
    """Whether a call is handed what its function was handed, or what a loop over a loader gives, as it is."""
    names = [each for each in call.args if isinstance(each, ast.Name)]
    bound = [binding for name in names for binding in script.tree.lookup(name.id, name)]
    return bool(bound) and all(
        isinstance(each.node, (ast.arg, ast.For)) or _is_part(script, each.value) for each in bound
    )


def _is_part(script: Script, value: ast.expr | None) -> bool:
    """Whether a value was moved to a device, or is a part of a parameter or of what a loop gives."""
    match value:
        case ast.Call(func=ast.Attribute(attr="to" | "cuda")):
            return True
        case ast.Subscript(value=ast.Name() as whole):
            around = script.tree.lookup(whole.id, whole)
            return bool(around) and all(isinstance(each.node, (ast.arg, ast.For)) for each in around)
    return False
