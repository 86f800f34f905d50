"""An exception that each rank raises by its own batch, that the lines around it catch, and a collective it skips."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import COLLECTIVES, called, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree

FINITE = re.compile(r"\b(?:isfinite|isnan|isinf)\(")
TELLS = re.compile(
    r"(?:print|traceback\.\w+|warnings\.warn|(?:\w+\.)*log\w*(?:\.\w+)?|.*\.format|str|repr)$", re.DOTALL
)
"""Calls of a handler that do nothing but tell."""
WITH_A_GROUP = re.compile(
    r"(?:not )?(?:\w+\.)*\w*(?:is_initialized|is_available|avail\w*_initialized|is_distributed)\(\)"
)
"""Tests that are the same on all ranks: whether there is a group at all."""


@dataclass(frozen=True, slots=True)
class Raised:
    """What is raised, under which test, what catches it, and the call that meets the other ranks behind it."""

    way: ast.Raise
    test: ast.expr
    handler: ast.ExceptHandler
    meets: ast.Call
    inner: str


def raised(script: Script) -> Iterator[Raised]:
    """Yield the exceptions by which one rank alone skips a collective, and goes on."""
    for attempt in script.nodes(ast.Try):
        ways = (
            [each for each in script.inside(*attempt.body) if isinstance(each, ast.Raise)] if attempt.handlers else []
        )
        for way in ways:
            branch = script.tree.parents.get(way)
            if (
                not isinstance(branch, ast.If)
                or branch not in attempt.body
                or not _is_of_the_batch(script, branch.test)
            ):
                continue
            handler = next((each for each in attempt.handlers if _catches(each.type, way.exc)), None)
            if handler is None or not _goes_on(handler) or attempt.finalbody:
                continue
            if any(each.is_rankish(script.tree) for each in script.guards(way)):
                continue
            behind = attempt.body[attempt.body.index(branch) + 1 :]
            found = next(_meetings(script, behind), None)
            if found is not None:
                yield Raised(way, branch.test, handler, *found)


def _meetings(script: Script, block: list[ast.stmt]) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls of a block in which all ranks meet, on every way through it, with the collective in them."""
    for statement in block:
        calls = [each for each in script.inside(statement) if isinstance(each, ast.Call)]
        for call in () if isinstance(statement, (ast.If, ast.Try, ast.For, ast.While)) else calls:
            if script.resolve(call.func) in COLLECTIVES and keyword(call, "group") is None:
                yield call, ""
            elif (there := called(script.tree, call)) is not None and (inner := _meets(script, *there)):
                yield call, inner


def _meets(script: Script, tree: Tree, function: ast.AST) -> str:
    """Return the collective that a function comes to wherever there is a group; empty where there is none."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and script.names_in(tree, node.func) in COLLECTIVES:
            tests = [ast.unparse(each.test) for each in script.guards_in(tree, node)]
            if all(WITH_A_GROUP.fullmatch(each) for each in tests) and keyword(node, "group") is None:
                return ast.unparse(node.func)
    return ""


def _is_of_the_batch(script: Script, test: ast.expr) -> bool:
    """Whether a test asks if what the model made of a rank's own batch is finite."""
    if not FINITE.search(ast.unparse(test)):
        return False
    names = [each for each in ast.walk(test) if isinstance(each, ast.Name) and script.tree.lookup(each.id, each)]
    made = [(name, script.held(name)) for name in names]
    return any(
        isinstance(value, ast.Call) and _takes_a_batch(script, value, name) and not _is_exchanged(script, name)
        for name, value in made
    )


def _takes_a_batch(script: Script, call: ast.Call, near: ast.Name) -> bool:
    """Whether a call is given what the loop around takes out of a loader."""
    loop = next((each for each in script.tree.above(near) if isinstance(each, ast.For)), None)
    drawn = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)} if loop is not None else set()
    if loop is None or (isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range"):
        return False
    return any(isinstance(each, ast.Name) and each.id in drawn for part in call.args for each in ast.walk(part))


def _is_exchanged(script: Script, name: ast.Name) -> bool:
    around = script.function(name)
    return any(
        script.function(call) is around
        and name.id in {each.id for each in ast.walk(call) if isinstance(each, ast.Name)}
        for call in script.calls(*COLLECTIVES)
        if call.lineno < name.lineno
    )


def _catches(kind: ast.expr | None, error: ast.expr | None) -> bool:
    """Whether a handler of a type catches what is raised, by what Python itself defines."""
    if kind is None:
        return True
    if isinstance(kind, ast.Tuple):
        return any(_catches(each, error) for each in kind.elts)
    one = _builtin(error.func if isinstance(error, ast.Call) else error)
    base = _builtin(kind)
    return one is not None and base is not None and issubclass(one, base)


def _builtin(node: ast.expr | None) -> type | None:
    found = getattr(builtins, node.id, None) if isinstance(node, ast.Name) else None
    return found if isinstance(found, type) else None


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler does nothing but tell, and lets the rank go on to its next batch."""
    away = (ast.Raise, ast.Return, ast.Break, ast.Yield)
    nodes = [each for part in handler.body for each in ast.walk(part)]
    calls = [ast.unparse(each.func) for each in nodes if isinstance(each, ast.Call)]
    return not any(isinstance(each, away) for each in nodes) and all(TELLS.match(each) for each in calls)
