"""Tests that say what they say, or that all calls answer alike, so that what stands behind them never runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.values.arguments import argument
from ddpdoctor.source.values.sites import is_spawn, seen_sites

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree


def never_runs(tree: Tree, node: ast.AST) -> bool:
    """Whether no call comes to a node.

    A test around it is closed: by itself (``and False``), or by what all calls that are seen pass. Or its function is
    defined anew below, sooner than anybody can have called it.
    """
    if any(_is_replaced(tree, each) for each in tree.above(node) if isinstance(each, ast.FunctionDef)):
        return True
    return any(truth(tree, guard.test) is (not guard.holds) for guard in guards(tree, node))


def _is_replaced(tree: Tree, function: ast.FunctionDef) -> bool:
    """Whether a function of the same name follows in the same block, and nothing between them runs what is defined."""
    block = tree.block(function)
    below = block[block.index(function) + 1 :]
    for each in below:
        if isinstance(each, ast.FunctionDef) and each.name == function.name:
            return not (each.decorator_list or function.decorator_list)
        if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) or each.decorator_list:
            return False  # a statement that can call it, or hand it on
    return False


def is_closed_to(tree: Tree, node: ast.AST, there: Tree, call: ast.Call) -> bool:
    """Whether one call of a function does not come to a node of it, by the literals that it passes."""
    return any(truth(tree, guard.test, (there, call)) is (not guard.holds) for guard in guards(tree, node))


def is_true_in_a_call(tree: Tree, test: ast.expr, node: ast.AST, depth: int = 3) -> bool:
    """Whether a call of the function that a node stands in comes to it, and passes literals by which a test holds.

    Or passes on a test of its own function, that holds so: ``sampler_of(data, shuffle=split == "train")``.
    """
    function = tree.function(node)
    if not isinstance(function, ast.FunctionDef):
        return truth(tree, test) is True
    return any(
        (truth(tree, test, each) is True or (depth > 0 and _holds_above(tree, test, each, depth - 1)))
        and not is_closed_to(tree, node, *each)
        for each in seen_sites(tree, function)
    )


def _holds_above(tree: Tree, test: ast.expr, site: tuple[Tree, ast.Call], depth: int) -> bool:
    """Whether what a call passes for a parameter is a test that holds in a call of the function around it."""
    there, call = site
    bindings = tree.lookup(test.id, test) if isinstance(test, ast.Name) else []
    function = tree.function(bindings[0].node) if len(bindings) == 1 else None
    if not isinstance(test, ast.Name) or not isinstance(function, ast.FunctionDef) or is_spawn(there, call):
        return False
    passed = argument(call, function, test.id, spawned=False) if isinstance(bindings[0].node, ast.arg) else None
    is_test = isinstance(passed, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Name)) and passed in there.parents
    return passed is not None and is_test and is_true_in_a_call(there, passed, call, depth)


DEPTH = 4  # variables and parts of a test that are followed
EQUALITY = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)


def truth(  # noqa: PLR0911 - one case a shape
    tree: Tree, test: ast.expr, site: tuple[Tree, ast.Call] | None = None, depth: int = DEPTH
) -> bool | None:
    """Return what a test is in all calls of its function; None where they differ, or pass what is no literal.

    ``site``: in this call alone, with the file that it stands in.
    """
    if depth == 0:
        return None
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = truth(tree, operand, site, depth - 1)
            return None if found is None else not found
        case ast.BoolOp(op=operator, values=parts):
            sides = [truth(tree, each, site, depth - 1) for each in parts]
            decisive = isinstance(operator, ast.Or)
            if decisive in sides:
                return decisive
            return None if None in sides else not decisive
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name() if (asked := _asked_once(tree, test)) is not None:
            return truth(tree, asked, site, depth - 1)
        case ast.Name():
            return _same({bool(each.value) if each is not None else None for each in _passed(tree, test, site)})
        case ast.Compare(left=ast.Name() as left, ops=[operator], comparators=[ast.Constant(value=other)]):
            is_equal = _same({each.value == other if each is not None else None for each in _passed(tree, left, site)})
            known = is_equal is not None and isinstance(operator, (ast.Is, ast.IsNot) if other is None else EQUALITY)
            return is_equal is isinstance(operator, (ast.Eq, ast.Is)) if known else None
    return None


def _same(answers: set[bool | None]) -> bool | None:
    return next(iter(answers)) if len(answers) == 1 else None


def _asked_once(tree: Tree, node: ast.Name) -> ast.expr | None:
    """Return the test whose answer a variable of a function holds, and nothing else: ``learns = split == "train"``."""
    bindings = tree.lookup(node.id, node)
    asked = bindings[0].value if len(bindings) == 1 and tree.function(bindings[0].node) is not None else None
    return asked if isinstance(asked, (ast.Compare, ast.BoolOp, ast.UnaryOp)) else None


def _passed(tree: Tree, node: ast.Name, site: tuple[Tree, ast.Call] | None) -> list[ast.Constant | None]:
    """Return the literals that calls pass for a parameter; None for one that passes something else."""
    name, bindings = node.id, tree.lookup(node.id, node)
    function = tree.function(bindings[0].node) if len(bindings) == 1 else None
    if not isinstance(function, ast.FunctionDef) or not isinstance(bindings[0].node, ast.arg):
        return []
    calls = [site] if site is not None else seen_sites(tree, function)
    given = [argument(each, function, name, spawned=is_spawn(there, each)) for there, each in calls]
    return [each if isinstance(each, ast.Constant) else None for each in given]
