"""The line from which a function was called in which one rank alone communicates, where there is only one."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Site, decided_at, last_name, runs_alike, tests_around, tree_of, ways_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddpdoctor.check import Exit, Guard, Tree

LEAVES = (ast.Break, ast.Return, ast.Continue, ast.Try)
DEEPEST = 4  # callers
CACHES = re.compile(r"(?:^|\.)(?:lru_cache|cache|cached|memoi[sz]e\w*|cached_property|cachedmethod|cachedproperty)$")
"""Decorators that keep what a function has returned, and do not run it again."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def caller_of(call: Site, going: Site) -> Site | None:
    """Return the line of the function that another rank is in which alone calls the function of a call.

    None where more lines of the file call one of that name, or where several functions have it.
    """
    if call.file != going.file or call.function == going.function:
        return None
    caller = _only_caller(call)
    return caller if caller is not None and caller.function == going.function else None


def meeting(call: Site, stack: Sequence[Site]) -> tuple[Site, Site] | None:
    """Return the two lines of one function that lead to a call, and to where another rank is, by its stack.

    None where that rank is in a loop of a function which is called there: it can be behind in that one.
    """
    at: Site | None = call
    for _ in range(DEEPEST):
        if at is None:
            break
        for site in stack:
            if (site.file, site.function) == (at.file, at.function):
                return at, site
            if share_a_loop(site, site):
                break
        at = _only_caller(at)
    return None


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
    return [
        (test, site)
        for site in ways_to(call, None)
        for test in tests_around(site.file, site.line)
        if "__name__" not in test
    ]


def decided_above(call: Site, going: Site) -> list[tuple[Guard, Site]]:
    """Return what decides, where ranks can answer otherwise, whether one comes to a call; nearest first.

    The other rank is at ``going``: what decides there as well has let both through.
    """
    passed = {each.words for each in decided_at(going.file, going.line)}
    return [
        (guard, site)
        for site in ways_to(call, going)
        for guard in decided_at(site.file, site.line)
        if guard.words not in passed or site.function != going.function
    ]


def cached(lines: Iterable[Site]) -> tuple[str, Site] | None:
    """Return the decorator of the first function, of those that these lines are in, whose results are kept."""
    for site in lines:
        for each in tree_of(site.file).of(ast.FunctionDef):
            if each.name == site.function and each.lineno <= site.line <= (each.end_lineno or 0):
                for kept in each.decorator_list:
                    name = ast.unparse(kept.func if isinstance(kept, ast.Call) else kept)
                    if CACHES.search(name):
                        return name, Site(site.file, kept.lineno, each.name)
    return None


def ways_to(call: Site, going: Site | None) -> list[Site]:
    """Return the lines that lead to a call, the innermost first, up to the function that another rank is in."""
    found: list[Site] = []
    site: Site | None = call
    while site is not None and len(found) < DEEPEST:
        found.append(site)
        is_last = going is not None and (site.file, site.function) == (going.file, going.function)
        site = None if is_last else _only_caller(site)
    return found


def left_generator(call: Site, via: Site | None) -> tuple[Exit, ...]:
    """Return the ways out of a loop through a generator, where a call stands behind all that this one yields."""
    tree = tree_of(call.file)
    function = next((each for each in tree.of(ast.FunctionDef) if each.name == call.function), None)
    yields = [
        each.lineno
        for each in (ast.walk(function) if function is not None else ())
        if isinstance(each, (ast.Yield, ast.YieldFrom))
    ]
    return ways_out(via.file, via.line) if via is not None and yields and max(yields) < call.line else ()


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
