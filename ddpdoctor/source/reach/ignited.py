"""What Ignite calls a handler by: what a step gave, and the filter of its event."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import keyword
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import statement_at
from ddpdoctor.source.text.tree import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

OF_ONE_STEP = frozenset({"batch", "output"})
EXCHANGED = re.compile("reduce|gather|broadcast")
REGISTER = "add_event_handler"


def is_of_a_step(tree: Tree, node: ast.AST) -> bool:
    """Whether an expression is ``engine.state.output``, or the batch: what one step of this rank gave, or was given."""
    match node:
        case ast.Attribute(attr=name, value=ast.Attribute(attr="state")) if name in OF_ONE_STEP:
            return _is_of_ignite(tree) and not (name == "output" and _is_exchanged(tree))
    return False


def _is_exchanged(tree: Tree) -> bool:
    """Whether a step that an Engine of the file is given exchanges something with the other ranks."""
    steps = {last_name(call.args[0]) for call in tree.of(ast.Call) if last_name(call.func) == "Engine" and call.args}
    bodies = [each for each in tree.of(ast.FunctionDef) if each.name in steps]
    return any(EXCHANGED.search(last_name(node.func)) for each in bodies for node in ast.walk(each)
               if isinstance(node, ast.Call))  # fmt: skip


def filters_at(tree: Tree, line: int) -> Iterator[ast.expr]:
    """Yield what the filter of the one event answers by which Ignite calls the function around a line."""
    statement = statement_at(tree, line)
    function = (
        next((each for each in tree.above(statement) if isinstance(each, FUNCTIONS)), None) if statement else None
    )
    if not isinstance(function, ast.FunctionDef) or not _is_of_ignite(tree):
        return
    events = [*_events(tree, function)]
    given = keyword(events[0], "event_filter") if len(events) == 1 and isinstance(events[0], ast.Call) else None
    match given:
        case ast.Lambda(body=body):
            yield body
        case ast.Name(id=name):
            for each in tree.of(ast.FunctionDef):
                if each.name == name:
                    yield from (node.value for node in ast.walk(each) if isinstance(node, ast.Return) and node.value)


def _events(tree: Tree, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the events that a function is registered for."""
    for each in function.decorator_list:
        if isinstance(each, ast.Call) and last_name(each.func) == "on":
            yield from each.args[:1]
    for call in tree.of(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr=name), args=[event, handler, *_]) if name == REGISTER:
                if last_name(handler) == function.name:
                    yield event


def _is_of_ignite(tree: Tree) -> bool:
    paths = [each.module or "" for each in tree.of(ast.ImportFrom)]
    paths += [name.name for each in tree.of(ast.Import) for name in each.names]
    return any(each.partition(".")[0] == "ignite" for each in paths)
