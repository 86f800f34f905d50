"""The line from which a function was called in which one rank alone communicates, where there is only one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import Site, last_name, runs_alike, tests_around, tree_of

if TYPE_CHECKING:
    from ddpdoctor.check import Tree

LEAVES = (ast.Break, ast.Return, ast.Continue, ast.Try)
DEEPEST = 4  # callers
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def caller_of(call: Site, going: Site) -> Site | None:
    """Return the line of the function that another rank is in which alone calls the function of a call.

    None where more lines of the file call one of that name, or where several functions have it.
    """
    if call.file != going.file or call.function == going.function:
        return None
    caller = _only_caller(call)
    return caller if caller is not None and caller.function == going.function else None


def _only_caller(call: Site) -> Site | None:
    """Return the one line of its file that calls the function of a line, where one function there has that name."""
    tree = tree_of(call.file)
    made = [each for each in tree.of(ast.FunctionDef) if each.name == call.function]
    named = [each for each in tree.of(ast.Call) if last_name(each.func) == call.function]
    return Site(call.file, named[0].lineno, _function(tree, named[0])) if len(made) == len(named) == 1 else None


def tests_above(call: Site) -> list[tuple[str, Site]]:
    """Return what must be true for the calls that lead to a line, nearest first, each with its line.

    Only functions count that one line of the file calls, and that have a name of their own there.
    """
    found: list[tuple[str, Site]] = []
    site: Site | None = call
    for _ in range(DEEPEST):
        if site is None:
            break
        found += [(test, site) for test in tests_around(site.file, site.line) if "__name__" not in test]
        site = _only_caller(site)
    return found


def share_a_loop(one: Site, other: Site) -> bool:
    """Whether a loop of one file has both lines."""
    tree = tree_of(one.file)
    lines = one.line, other.line
    return one.file == other.file and any(
        each.lineno <= min(lines) and max(lines) <= (each.end_lineno or 0)
        for each in (*tree.of(ast.For), *tree.of(ast.While))
    )


def left_alike(file: str, inside: int, outside: int) -> bool:
    """Whether all ranks run a line equally often in the loops that another line is not in: no test is around it."""
    tree = tree_of(file)
    loops = [
        each
        for each in (*tree.of(ast.For), *tree.of(ast.While))
        if each.lineno <= inside <= (each.end_lineno or 0) and not each.lineno <= outside <= (each.end_lineno or 0)
    ]
    return all(isinstance(each, ast.For) and runs_alike(each, tree) and not _is_left(each, inside) for each in loops)


def _is_left(loop: ast.For, inside: int) -> bool:
    tests = (each for each in ast.walk(loop) if isinstance(each, ast.If))
    return any(isinstance(each, LEAVES) for each in ast.walk(loop)) or any(
        each.lineno <= inside <= (each.end_lineno or 0) for each in tests
    )


def _function(tree: Tree, call: ast.Call) -> str:
    function = tree.function(call)
    return function.name if isinstance(function, FUNCTIONS) else "<module>"
