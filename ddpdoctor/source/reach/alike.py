"""What is alike on all ranks: how often a loop runs, and the answer of a test."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.rank_facts import DEPTH
from ddpdoctor.source.reach.rankish import is_shared
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.bound import given, value, values

if TYPE_CHECKING:
    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree

Loop = ast.For | ast.While
ANSWERS = frozenset(
    "torch.distributed.is_available torch.distributed.is_initialized torch.distributed.get_world_size"
    " torch.is_grad_enabled torch.cuda.is_available".split()
)
"""Functions that answer alike on all ranks."""
JOINED = (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)


PARTS = frozenset("parameters named_parameters buffers named_buffers modules named_modules children".split())
PASSED_ON = frozenset({"enumerate", "list", "tuple", "reversed", "sorted"})


def runs_alike(loop: Loop, tree: Tree) -> bool:
    """Whether a loop runs as often on all ranks: for ever, over epochs, parts of a model, or a range of options."""
    if isinstance(loop, ast.While):
        return isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    if "epoch" in ast.unparse(loop.target).lower():
        return True
    call = loop.iter
    return _is_of_model(tree, call, DEPTH) or (
        isinstance(call, ast.Call)
        and ast.unparse(call.func) == "range"
        and all(_is_alike_count(tree, each) for each in call.args)
    )


def begins_with(loop: Loop, tree: Tree) -> tuple[ast.expr, ast.expr] | None:
    """Return where a range begins and what it was given, where a rank finds that for itself: what a call returns.

    A rank that resumes begins later than one that found no checkpoint, and has fewer passes.
    """
    match loop:
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[ast.Name() | ast.Attribute() as start, _, *_])):
            if is_shared(tree, start, DEPTH):
                return None
            held = (each.value for each in values(tree, start))
            found = (each for each in held if isinstance(each, (ast.Call, ast.Subscript, ast.BinOp)))
            return next(((start, each) for each in found if any(map(_is_found, ast.walk(each)))), None)
    return None


def _is_found(node: ast.AST) -> bool:
    """Whether a part of an expression is found out at run time: read from a file, say."""
    return isinstance(node, (ast.Call, ast.Subscript)) and ast.unparse(node).split("(")[0] not in {"int", "min", "max"}


def _is_of_model(tree: Tree, items: ast.expr, depth: int) -> bool:
    """Whether a loop goes through the parts of a model, which all ranks have alike; not through those with a gradient.

    A list that is filled by ``append`` need not have all of them.
    """
    match items if depth else None:
        case ast.Call(func=ast.Attribute(attr=name), args=[]) if name in PARTS:
            return True
        case ast.Call(func=function, args=[first, *_]) if ast.unparse(function) in PASSED_ON:
            return _is_of_model(tree, first, depth - 1)
        case ast.ListComp(generators=[only]):
            asked = (each for test in only.ifs for each in ast.walk(test) if isinstance(each, ast.Attribute))
            return all(each.attr != "grad" for each in asked) and _is_of_model(tree, only.iter, depth - 1)
        case ast.Name() | ast.Attribute():
            held = [each.value for each in values(tree, items)]
            return bool(held) and all(each is not None and _is_of_model(tree, each, depth - 1) for each in held)
    return False


def _is_alike_count(tree: Tree, count: ast.expr) -> bool:
    """Whether a number is the same on all ranks: a literal, what a name holds that is given one, or an option."""
    match count:
        case ast.BinOp(left=left, right=right):
            return _is_alike_count(tree, left) and _is_alike_count(tree, right)
        case ast.Name() | ast.Attribute():
            return is_shared(tree, count, DEPTH) or isinstance(value(tree, count), ast.Constant)
    return isinstance(count, ast.Constant)


def answers_alike(tree: Tree, test: ast.AST, depth: int = 4) -> bool:
    """Whether a test has one answer on all ranks in the same pass: it asks for a count, a mode or an option."""
    match test:
        case ast.Constant() | ast.Name(id="__name__") | ast.Attribute(attr="training"):
            return True
        case ast.Call(func=function):
            return resolve(tree, function) in ANSWERS
        case ast.Name() | ast.Attribute():
            held = values(tree, test)
            return is_shared(tree, test, DEPTH) or (bool(held) and all(_is_alike(tree, each, depth) for each in held))
    return isinstance(test, JOINED) and all(answers_alike(tree, each, depth) for each in ast.iter_child_nodes(test))


def _is_alike(tree: Tree, binding: Binding, depth: int) -> bool:
    """Whether a name is given what all ranks have alike: what a loop counts, or what all callers pass."""
    match binding.node:
        case ast.For(target=ast.Name(), iter=ast.Call(func=ast.Name(id="range"))):
            return True
        case ast.For(target=ast.Tuple(elts=[ast.Name() as first, _]), iter=ast.Call(func=ast.Name(id="enumerate"))):
            return any(each is binding for each in tree.lookup(first.id, first))
        case ast.AugAssign(value=ast.Constant()):
            return True
    held = given(tree, binding) if depth else None
    return bool(held) and all(answers_alike(there, each, depth - 1) for there, each in held or ())
