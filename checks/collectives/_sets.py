"""Loops through a set: texts have another hash in each process, and so another order."""

from __future__ import annotations

import ast

from ddpdoctor.check import Site, Tree, statement_at, tree_of

SETS = frozenset({"set", "frozenset"})
METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
KEEPS_ORDER = frozenset({"list", "tuple", "enumerate", "iter", "reversed"})
DEEPEST = 5


def loop_through_a_set(site: Site | None) -> ast.For | None:
    """Return the innermost loop around a line, if it goes through a set in the order that this happens to have."""
    if site is None:
        return None
    tree = tree_of(site.file)
    statement = statement_at(tree, site.line)
    above = [statement, *tree.above(statement)] if statement is not None else []
    loop = next((each for each in above if isinstance(each, (ast.For, ast.While))), None)
    return loop if isinstance(loop, ast.For) and is_a_set(tree, loop.iter) else None


def is_a_set(tree: Tree, node: ast.expr, depth: int = DEEPEST) -> bool:
    """Whether an expression is a set, or what keeps the order of one, as far as its own file tells for certain."""
    if not depth:
        return False
    found = isinstance(node, (ast.Set, ast.SetComp))
    match node:
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, OPERATORS):
            found = is_a_set(tree, left, depth - 1) or (isinstance(op, ast.BitAnd) and is_a_set(tree, right, depth - 1))
        case ast.Call(func=ast.Name(id=name), args=args):
            kept = name in KEEPS_ORDER and len(args) == 1 and is_a_set(tree, args[0], depth - 1)
            found = name in SETS or kept or _returns_a_set(tree, name, depth - 1)
        case ast.Call(func=ast.Attribute(value=owner, attr=name)):
            method = name in METHODS and is_a_set(tree, owner, depth - 1)
            found = method or _returns_a_set(tree, name, depth - 1)
        case ast.Name(id=name):
            found = all_are_sets(tree, _values(tree, node, name), depth - 1)
    return found


def all_are_sets(tree: Tree, values: list[ast.expr], depth: int) -> bool:
    """Whether there are values, and all of them are sets."""
    return bool(values) and all(is_a_set(tree, each, depth) for each in values)


def _values(tree: Tree, node: ast.expr, name: str) -> list[ast.expr]:
    """Return what a name is given in the function, or module, that an expression stands in."""
    around = next((each for each in tree.above(node) if isinstance(each, ast.FunctionDef)), tree.module)
    given = [each for each in ast.walk(around) if isinstance(each, ast.Assign)]
    return [each.value for each in given if any(isinstance(t, ast.Name) and t.id == name for t in each.targets)]


def _returns_a_set(tree: Tree, name: str, depth: int) -> bool:
    """Whether the one function of this name in a file returns sets alone."""
    functions = [each for each in tree.of(ast.FunctionDef) if each.name == name]
    if len(functions) != 1:
        return False
    values = [each.value for each in ast.walk(functions[0]) if isinstance(each, ast.Return) and each.value is not None]
    return all_are_sets(tree, values, depth)
