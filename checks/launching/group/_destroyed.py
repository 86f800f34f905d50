"""Calls that destroy the process group, and come one after the other on one way through a function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import INIT

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree

DESTROY = "torch.distributed.destroy_process_group"
LEAVES = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)
LEVELS = 2  # functions between the line and torch's call
IDLE = re.compile(
    r"(?:print|len|str|int|float|round|format|sum|max|min|time|gc|os|sys|wandb|plt|json|logging|logger|log|torch\.cuda)\b"
    r"|(?:\w+\.)+(?:close|finish|info|flush|format|join|item|cpu|append|perf_counter|write|dump|save|barrier)$"
)
"""What makes no process group, by its name."""


def second_calls(script: Script) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield each call that finds no group, since another one has come before it in any case; that one first."""
    if "destroy_process_group" not in script.text and not script.calls(INIT):
        return
    for block in (script.module.body, *(each.body for each in script.nodes(ast.FunctionDef))):
        last: ast.Call | None = None
        for statement in _in_order(block):
            call = _destroying(script, script.tree, statement)
            if call is None:
                last = last if _is_idle(statement) else None
                continue
            if last is not None and _is_bare(script, script.tree, call):
                yield last, call
            last = call


def _in_order(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what runs one after the other where nothing is raised, through ``with``, ``try`` and the main block."""
    for each in block:
        is_main = isinstance(each, ast.If) and ast.unparse(each.test) == "__name__ == '__main__'"
        if isinstance(each, ast.With) or (isinstance(each, ast.If) and is_main):
            yield from _in_order(each.body)
        elif isinstance(each, ast.Try):
            yield from _in_order([*each.body, *each.orelse, *each.finalbody])
        else:
            yield each


def _destroying(script: Script, tree: Tree, statement: ast.stmt, levels: int = LEVELS) -> ast.Call | None:
    """Return the call of a statement behind which there is no default group in any case."""
    match statement:
        case ast.Expr(value=ast.Call() as call) if script.names_in(tree, call.func) == DESTROY:
            return None if call.args or call.keywords else call
        case ast.Expr(value=ast.Call() as call) if levels:
            there, function = script.defined_in(tree, call.func) or (tree, None)
            if isinstance(function, ast.FunctionDef) and _ends_without(script, there, function, levels - 1):
                return call
    return None


def _ends_without(script: Script, tree: Tree, function: ast.FunctionDef, levels: int) -> bool:
    """Whether each call of a function ends without a group: it cannot return before it destroys it."""
    is_done = False
    for each in _in_order(function.body):
        if _destroying(script, tree, each, levels) is not None:
            is_done = True
        elif (
            is_done and isinstance(each, ast.Return) and not any(isinstance(node, ast.Call) for node in ast.walk(each))
        ):
            break
        elif is_done and not _is_idle(each):
            is_done = False
        elif not is_done and any(isinstance(node, LEAVES) for node in script.inside(each)):
            return False
    return is_done and not function.decorator_list


def _is_bare(script: Script, tree: Tree, call: ast.Call, levels: int = LEVELS) -> bool:
    """Whether a call that destroys the group makes none before."""
    if script.names_in(tree, call.func) == DESTROY:
        return True
    there, function = script.defined_in(tree, call.func) or (tree, None)
    for each in _in_order(function.body) if isinstance(function, ast.FunctionDef) and levels else ():
        inner = _destroying(script, there, each, levels)
        if inner is not None:
            return _is_bare(script, there, inner, levels - 1)
        if not _is_idle(each):
            return False
    return False


def _is_idle(statement: ast.stmt) -> bool:
    """Whether a statement goes on to the next one, and makes no group."""
    nodes = list(ast.walk(statement))
    called = [ast.unparse(each.func) for each in nodes if isinstance(each, ast.Call)]
    return all(IDLE.match(each) for each in called) and not any(isinstance(each, LEAVES) for each in nodes)
