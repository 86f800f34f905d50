"""A step of a wrapped model within a ``try`` whose handler goes on: the rank that meets an error leaves the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import COLLECTIVES

if TYPE_CHECKING:
    from ddpdoctor.check import Script

BROAD = {
    "Exception", "BaseException", "RuntimeError", "torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError",
    "torch.AcceleratorError",
}  # fmt: skip
AWAY = (ast.Raise, ast.Return, ast.Break)
HARMLESS = re.compile(
    r"(?:print|str|repr|len|int|(?:\w+\.)*(?:warn|log\w*|debug|info|warning|error|exception|write|append|format|join|print_exc"
    r"|format_exc|zero_grad|empty_cache|collect|memory_summary|synchronize|parameters|set_to_none|lower|item|startswith))$"
)
"""Calls of a handler that tell, count or tidy up: none of them lets the other ranks know."""


class Caught(NamedTuple):
    """The call of the wrapped model, and what catches its errors."""

    forward: ast.Call
    handler: ast.ExceptHandler


def caught_steps(script: Script) -> Iterator[Caught]:
    """Yield the steps of a training whose errors a rank catches for itself, and goes on to its next batch."""
    for attempt in script.nodes(ast.Try):
        loop = next((each for each in script.tree.above(attempt) if isinstance(each, ast.For)), None)
        handler = next((each for each in attempt.handlers if _is_broad(script, each.type)), None)
        if loop is None or handler is None or attempt.finalbody or not _goes_on(handler.body):
            continue
        calls = [each for each in script.inside(*attempt.body) if isinstance(each, ast.Call)]
        is_step = any(isinstance(each.func, ast.Attribute) and each.func.attr == "backward" for each in calls)
        forward = next((each for each in calls if _is_wrapped(script, each.func)), None)
        is_agreed = any(script.resolve(each.func) in COLLECTIVES for each in _calls(loop))
        if is_step and forward is not None and not is_agreed:
            yield Caught(forward, handler)


def _is_broad(script: Script, kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(script, each) for each in kind.elts)
    return kind is None or (script.resolve(kind) or ast.unparse(kind)) in BROAD


def _is_wrapped(script: Script, model: ast.expr) -> bool:
    wrap = script.wrap(model) if isinstance(model, (ast.Name, ast.Attribute)) else None
    return wrap is not None and wrap.sure and wrap.kind == "DistributedDataParallel"


def _goes_on(body: list[ast.stmt]) -> bool:
    """Whether a way leads through a block that neither leaves the loop nor calls what can tell other ranks."""
    for statement in body:
        if isinstance(statement, ast.Continue):
            return True
        if isinstance(statement, ast.If):
            if not _is_harmless(statement.test):
                return False
            ways = [way for way in (statement.body, statement.orelse or [ast.Pass()]) if _goes_on(way)]
            if not ways:
                return False
        elif isinstance(statement, AWAY) or not _is_harmless(statement):
            return False
    return True


def _is_harmless(node: ast.AST) -> bool:
    return all(HARMLESS.match(ast.unparse(each.func)) for each in _calls(node))


def _calls(node: ast.AST) -> list[ast.Call]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Call)]
