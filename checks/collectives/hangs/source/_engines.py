"""DeepSpeed's engine, whose checkpoint all ranks have to write, also in a function that one rank alone calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import OTHER_RANKS, by_parameter, dotted

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree

ENGINE_METHODS = {"save_checkpoint", "load_checkpoint"}


def saved_by_helpers(script: Script) -> Iterator[tuple[ast.Call, ast.expr, str]]:
    """Yield calls of functions that write an engine's checkpoint: the call, the test, the engine's method."""
    for call in script.nodes(ast.Call) if script.calls("deepspeed.initialize") else ():
        found = script.defined(call.func)
        if found is None or not isinstance(found[1], ast.FunctionDef) or found[1].decorator_list:
            continue
        guard = script.one_rank_guard(call)
        if guard is None or _others_call(script, call):
            continue
        if (inner := _method(script, found[0], found[1], call)) is not None:
            yield call, guard.test, inner


def _others_call(script: Script, call: ast.Call) -> bool:
    """Whether a line calls the same function that only the other ranks come to, or that some come to."""
    code = ast.dump(call.func)
    same = [each for each in script.nodes(ast.Call) if each is not call and ast.dump(each.func) == code]
    tests = [[*script.guards(each)] for each in same if script.one_rank_guard(each) is None]
    return any(each.who(script.tree) == OTHER_RANKS or each.is_rankish(script.tree) for way in tests for each in way)


def _method(script: Script, tree: Tree, function: ast.FunctionDef, call: ast.Call) -> str | None:
    """Return the engine's method that a function calls on each of its ways."""
    handed = by_parameter(function, call)
    for node in tree.of(ast.Call):
        match node.func:
            case ast.Attribute(value=owner, attr=name) if name in ENGINE_METHODS and tree.function(node) is function:
                if script.guards_in(tree, node):
                    continue
                given = handed.get(owner.id) if isinstance(owner, ast.Name) else None
                if given is not None:
                    held = is_engine(script, given)
                else:
                    held = tree is script.tree and is_engine(script, owner)
                if held:
                    return ast.unparse(node.func)
    return None


def is_engine(script: Script, node: ast.expr) -> bool:
    """Whether an expression holds the engine that deepspeed.initialize returned, the first of four."""
    if isinstance(node, ast.Name):
        bound = sorted(script.tree.lookup(node.id, node), key=lambda each: each.line)
        made = [each.node for each in bound if each.line < node.lineno][
            -1:
        ]  # what held the model before is its argument
    elif isinstance(node, ast.Attribute):
        stores = (each for each in script.nodes(ast.Attribute) if isinstance(each.ctx, ast.Store))
        held = [each for each in stores if dotted(each) == dotted(node)]
        made = [next((up for up in script.tree.above(each) if isinstance(up, ast.Assign)), each) for each in held]
    else:
        return False
    match made:
        case [ast.Assign(targets=[ast.Tuple(elts=[first, *_])], value=ast.Call(func=function))]:
            return dotted(first) == dotted(node) and script.resolve(function) == "deepspeed.initialize"
    return False
