"""A loop that gives a model the samples of a batch one by one, though no pass of it needs the one before."""

from __future__ import annotations

import ast
import re

from ddpdoctor.check import Tree

from ._filled import carries_names

LENGTH = re.compile(r"\b(\w+)\.shape\[0\]|\b(\w+)\.size\(0\)|len\((\w+)\)|\b(\w+)\.size\(dim=0\)")
PAIRED = ("zip", "enumerate")


def goes_through_samples(tree: Tree, loop: ast.For) -> bool:
    """Whether a loop goes through the first dimension of what its function is given, and its passes are independent."""
    given = _arguments(tree, loop)
    through = loop.iter
    counted = None
    match through:
        case ast.Call(func=ast.Name(id="range"), args=[length]):
            counted = loop.target
            names = measured(tree, length)
        case ast.Call(func=ast.Name(id=name), args=args) if name in PAIRED:
            names = {each.id for each in args if isinstance(each, ast.Name)}
        case ast.Name(id=name):
            names = {name}
        case _:
            return False
    if not names & given or not _calls_a_module(loop):
        return False
    if counted is not None and not _takes_a_sample(loop, counted, names):
        return False
    return not _carries(loop)


def _arguments(tree: Tree, loop: ast.For) -> set[str]:
    function = tree.function(loop)
    arguments = getattr(function, "args", None)
    found = {each.arg for each in (*arguments.posonlyargs, *arguments.args)} if arguments is not None else set()
    return found - {"self"}


def measured(tree: Tree, length: ast.expr) -> set[str]:
    """Return whose first dimension a number is: ``x.shape[0]``, ``len(x)``, or a name that was bound to it."""
    text = ast.unparse(length)
    if isinstance(length, ast.Name):
        for binding in tree.lookup(length.id, length):
            match binding.node:
                case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), *_])], value=value) if name == length.id:
                    text = f"{ast.unparse(value)}[0]".replace(".size()[0]", ".size(0)")
                case ast.Assign(value=value):
                    text = ast.unparse(value)
    return {name for found in LENGTH.finditer(text) for name in found.groups() if name}


def _calls_a_module(loop: ast.For) -> bool:
    """Whether a member of ``self`` is called in it: a layer."""
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self.")
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _takes_a_sample(loop: ast.For, counted: ast.expr, names: set[str]) -> bool:
    """Whether the counter is the first index of one of these: ``x[i]``, ``x[i, :, 0]``; ``x[:, i]`` is no sample."""
    for node in (each for statement in loop.body for each in ast.walk(statement)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names:
            first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
            if isinstance(first, ast.Name) and isinstance(counted, ast.Name) and first.id == counted.id:
                return True
    return False


def _carries(loop: ast.For) -> bool:
    """Whether a pass reads what an earlier one has set: a name that is read before it is bound, or an attribute."""
    nodes = [node for statement in loop.body for node in ast.walk(statement)]
    if any(isinstance(node, (ast.AugAssign, ast.Break, ast.Global, ast.Nonlocal)) for node in nodes):
        return True
    if any(isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) for node in nodes):
        return True
    return carries_names(loop.body)
