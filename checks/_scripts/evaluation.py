"""Evaluations in a source: functions that keep no gradients or follow eval(), and the loops over loaders in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree
from .source import iterations


def is_evaluation(script: Script, name: str, loop: ast.For) -> bool:
    """Whether a loop goes through a loader without learning: by the loader's name, or since no gradient is kept."""
    if EVALUATION.search(name):
        return True
    function = script.function(loop)
    decorators = [ast.unparse(each) for each in getattr(function, "decorator_list", ())]
    if any(NO_GRADIENTS.search(each) for each in decorators) or _keeps_no_gradients(script.tree, loop):
        return True
    if isinstance(function, ast.FunctionDef) and _is_called_without_gradients(script, function):
        return True
    return _follows_eval(script, loop) and not script.learns(loop)


NO_GRADIENTS = re.compile("no_grad|inference_mode")


def _keeps_no_gradients(tree: Tree, node: ast.AST) -> bool:
    """Whether a node stands within ``with torch.no_grad():``."""
    outer = [each for each in tree.above(node) if isinstance(each, (ast.With, ast.AsyncWith))]
    return any(NO_GRADIENTS.search(ast.unparse(item.context_expr)) for each in outer for item in each.items)


def _is_called_without_gradients(script: Script, function: ast.FunctionDef) -> bool:
    """Whether all calls of a function that are seen, here and in other files, stand within such a ``with``."""
    sites = [(script.tree, each) for each in script.sites(function)]
    sites += script.tree.callers(function) if script.tree.callers is not None else []
    return bool(sites) and all(_keeps_no_gradients(*each) for each in sites)


def _follows_eval(script: Script, loop: ast.For) -> bool:
    """Whether a model was put into evaluation mode before a loop, in its block, and not back since."""
    block = script.tree.block(loop)
    modes = [
        each.value.func.attr
        for each in block[: block.index(loop)]
        if isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Call)
        and isinstance(each.value.func, ast.Attribute)
    ]
    return next((each for each in reversed(modes) if each in {"eval", "train"}), "") == "eval"


EVALUATION = re.compile("val|test|eval|dev", re.IGNORECASE)


def evaluations(script: Script, name: str) -> Iterator[tuple[ast.For, str]]:
    """Yield the loops without gradients through what a name holds, with each sum that they keep."""
    for root in (script.module, *script.nodes(ast.FunctionDef)):
        if isinstance(root, ast.FunctionDef) and name in {
            each.arg for each in ast.walk(root.args) if isinstance(each, ast.arg)
        }:
            continue  # another thing of this name; what it is given is followed from the call
        if "." in name and not script.tree.attributes.get((script.tree.class_of(root), name)):
            continue  # of an object of another class
        for loop in iterations(script, name, root):
            for node in script.inside(*loop.body) if is_evaluation(script, "", loop) else ():
                match node:
                    case ast.AugAssign(target=ast.Name(id=held), op=ast.Add()):
                        yield loop, held
