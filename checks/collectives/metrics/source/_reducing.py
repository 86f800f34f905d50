"""Which calls put the ranks' parts together, by their names or by what the project's functions do."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import dotted

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree

REDUCED = (
    r"reduce|gather|torchmetrics|sync_and_compute|synchronize|Metric|Evaluator|broadcast|hvd\.|xm\.|MeanAverage"
    r"|\bdist_utils"
)
"""What says that somebody puts the ranks' parts together."""


def puts_together(script: Script, tree: Tree, node: ast.AST) -> bool:
    """Whether a node is a call that puts parts together, or of a function of the project that does."""
    found = script.defined_in(tree, node.func) if isinstance(node, ast.Call) else None
    return calls_reduction(node) or (found is not None and any(calls_reduction(each) for each in ast.walk(found[1])))


def is_reducing(script: Script, tree: Tree, function: ast.AST) -> bool:
    """Whether a function says that it puts parts together, or calls one of the project that does."""
    return any(puts_together(script, tree, node) for node in ast.walk(function))


def calls_reduction(node: ast.AST) -> bool:
    """Whether a node calls what puts parts together, by its name; what another call returns is looked at there."""
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
    return re.search(REDUCED, name) is not None and not _is_of_one_tensor(node)


OF_ONE = re.compile(r"(?:torch\.gather|(?:functools|einops|np\.\w+|numpy\.\w+)\.reduce|\.(?:scatter|index)_reduce_?)$")
"""What has such a name, and works on one tensor or list of this process."""


def _is_of_one_tensor(call: ast.Call) -> bool:
    """Whether a call picks elements of one tensor, or combines those of one list: ``scores.gather(1, index)``."""
    match call:
        case ast.Call(func=ast.Attribute(attr="gather"), args=[ast.Constant(value=int()) | ast.UnaryOp(), _]):
            return True
        case ast.Call(func=ast.Attribute(attr="gather"), keywords=keywords):
            if {"dim", "index"} & {each.arg for each in keywords}:
                return True
    return OF_ONE.search(ast.unparse(call.func)) is not None


def assigned(around: ast.AST) -> list[ast.Assign]:
    """Return the assignments within a node."""
    return [each for each in ast.walk(around) if isinstance(each, ast.Assign)]
