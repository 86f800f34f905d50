"""Statements of a class: what they assign, call and use, as its attributes are asked for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import last_name

REDUCES = re.compile(
    r"^(mean|sum|var|std|var_mean|std_mean|median|quantile|norm|bincount|[na]?a?max|a?min|index_add_?|scatter_add_?|cov"
    r"|matmul|mm|einsum|average|logsumexp)$"
)
"""Functions that make of many samples a few numbers."""
METERS = re.compile("Metric|Meter|FID|Score|Logger|Monitor|Tracker", re.IGNORECASE)
OF_CLASSES = re.compile(r"cent(er|re|roid)|proto|codebook|cluster", re.IGNORECASE)
TOLD = {"print", "log", "info", "debug", "add_scalar", "append", "write"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def of_functions(tree: ast.ClassDef | ast.Module) -> Iterator[tuple[Function, ast.stmt]]:
    """Yield the statements of the functions that stand in a class, or in a file."""
    for function in tree.body:
        if isinstance(function, Function):
            yield from ((function, node) for node in ast.walk(function) if isinstance(node, ast.stmt))


def given(function: Function) -> set[str]:
    """Return the names of the parameters of a function."""
    return {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}


def attributes(node: ast.AST) -> set[str]:
    """Return the names of the attributes of ``self`` in an expression or a statement."""
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and last_name(each.value) == "self"}


def targets_of(node: ast.stmt) -> set[str]:
    """Return the last names of what a statement gives another value, in place too."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name.endswith("_"):
            return {last_name(each) for each in chain(node.value)} - {""}
    return {last_name(each) for each in targets(node)}


def said(node: ast.AST, function: Function) -> bool | None:
    """Whether a statement, or what its names were assigned, reduces; None where a parameter may have done so."""
    parameters = given(function) - {"self"}
    waiting, seen, unseen = [node], {id(node)}, False
    while waiting:
        for each in ast.walk(waiting.pop()):
            matrix = isinstance(each, ast.BinOp) and isinstance(each.op, ast.MatMult)
            if matrix or (isinstance(each, ast.Call) and REDUCES.match(last_name(each.func))):
                return True
            if isinstance(each, ast.Name):
                unseen = unseen or each.id in parameters
                for other in ast.walk(function):
                    if isinstance(other, ast.Assign) and id(other) not in seen and _names_in(other) & {each.id}:
                        seen.add(id(other))
                        waiting.append(other.value)
    return None if unseen else False


def _names_in(node: ast.Assign) -> set[str]:
    """Return the plain names that a statement assigns."""
    parts = [part for each in node.targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def calls(tree: ast.AST) -> list[ast.Call]:
    """Return the calls in a tree."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def is_meter(name: str, classes: list[tuple[str, ast.ClassDef]]) -> bool:
    """Whether a class tells of a training, by its name, and does not steer it: one that learns a metric does."""
    return METERS.search(name) is not None and not any(
        last_name(each.func) == "backward" for _, own in classes for each in calls(own)
    )


def looked_at(side: ast.AST, name: str) -> Iterator[ast.AST]:
    """Yield the nodes of an expression in which an attribute can meet samples.

    What has a row for each sample, each rank fills and looks up for its own; centers of classes are all ranks'.
    """
    return ast.walk(side) if OF_CLASSES.search(name) else whole(side)


def whole(side: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression, without what is looked up in a table by an index."""
    waiting = [side]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Subscript) and any(isinstance(each, ast.Name) for each in ast.walk(node.slice)):
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def used(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, without what is assigned to attributes, printed or compared."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if any(isinstance(each, (ast.Attribute, ast.Subscript)) for each in targets(node)):
            continue
        if isinstance(node, (ast.JoinedStr, ast.Compare, ast.Assert)):
            continue
        if isinstance(node, ast.Call) and last_name(node.func) in TOLD:
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def chain(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what methods are called on, one after another: ``self.mean.mul_(a).add_(b)``."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
        yield node


def targets(node: ast.AST) -> list[ast.expr]:
    """Return what a statement assigns, parts of it by the whole."""
    if isinstance(node, ast.Assign):
        several = [each.elts if isinstance(each, ast.Tuple) else [each] for each in node.targets]
        return [bare(each) for those in several for each in those]
    return [bare(node.target)] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []


def bare(node: ast.expr) -> ast.expr:
    """Return an expression without its subscripts."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def has_name(node: ast.AST) -> bool:
    """Whether an expression computes with a variable."""
    return any(isinstance(each, ast.Name) and each.id not in {"self", "math", "np", "torch"} for each in ast.walk(node))
