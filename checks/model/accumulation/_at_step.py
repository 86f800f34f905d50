"""Whether a test holds at the micro-batch that an optimizer's step follows, read off the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import dotted

if TYPE_CHECKING:
    from ddpdoctor.check import Script

STEPS = re.compile(r"opt\w*\.step$", re.IGNORECASE)
OPPOSITE = {ast.NotEq: ast.Eq, ast.GtE: ast.Lt, ast.LtE: ast.Gt}
SIGNS = {ast.Eq: "==", ast.Lt: "<", ast.Gt: ">"}
DEPTH = 4
LOOPS = (ast.For, ast.AsyncFor)


def the_step(script: Script, node: ast.AST) -> ast.Call | None:
    """Return the one step of an optimizer that follows a line in its function, in its loop or right behind it."""
    function = script.function(node)
    around = function or script.module
    steps = [
        each
        for each in script.inside(around)
        if isinstance(each, ast.Call) and STEPS.search(dotted(each.func) or "") and script.function(each) is function
    ]
    after = [each for each in steps if each.lineno > getattr(node, "lineno", 0)]
    return after[0] if len(steps) == len(after) == 1 else None


def is_followed(script: Script, node: ast.AST, step: ast.Call) -> bool:
    """Whether another backward stands between the statement of a line, and all its branches, and the step."""
    statement = script.tree.statement(node)
    branch = script.tree.parents.get(statement) if statement is not None else None
    whole = branch if isinstance(branch, ast.If) and step not in ast.walk(branch) else statement
    end = getattr(whole, "end_lineno", None) or 0
    around = script.function(node) or script.module
    backwards = [each for each in script.inside(around) if isinstance(each, ast.Call) and _name(each) == "backward"]
    return any(end < each.lineno < step.lineno for each in backwards)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def holds_at_step(script: Script, test: ast.expr, step: ast.Call) -> bool | None:
    """Return what a test answers in the micro-batch right before a step; None where that is not certain."""
    core, holds = _normal(script, test, DEPTH)
    for guard in script.guards(step):
        other, other_holds = _normal(script, guard.test, DEPTH)
        if other == core:
            return (holds == other_holds) == guard.holds
    loop = next((each for each in script.tree.above(test) if isinstance(each, LOOPS)), None)
    if loop is None or step in ast.walk(loop):
        return None
    answer = dict(_at_the_last(loop)).get(core)
    return None if answer is None else answer == holds


def _normal(script: Script, test: ast.expr, depth: int) -> tuple[str, bool]:
    """Return a test without negations, and whether it was without one itself."""
    match test if depth else None:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            core, holds = _normal(script, inner, depth)
            return core, not holds
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            kind = OPPOSITE.get(type(operator), type(operator))
            if kind in SIGNS:
                return f"{ast.unparse(left)} {SIGNS[kind]} {ast.unparse(right)}", kind is type(operator)
        case ast.BinOp(op=ast.Mod()):
            return f"{ast.unparse(test)} == 0", False
        case ast.Name():
            held = script.value(test)
            if held is not test:
                return _normal(script, held, depth - 1)
    return ast.unparse(test), True


def _at_the_last(loop: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield what tests of the number answer in the last pass of ``for number in range(count)``."""
    match loop:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[count])):
            last = ast.unparse(count)
            yield f"{name} == {last} - 1", True
            yield f"{name} < {last} - 1", False
            yield f"{name} + 1 == {last}", True
            yield f"{name} + 1 < {last}", False
            yield f"({name} + 1) % {last} == 0", True
