"""Numbers that one rank alone counts up from 0, and that all ranks divide by."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Guard, Script

DIVIDES = (ast.Div, ast.FloorDiv, ast.Mod)


def divided(script: Script) -> Iterator[tuple[ast.BinOp, ast.Name, Guard]]:
    """Yield the divisions of 0 by 0 that all ranks but one come to, with the divisor and the test of the one."""
    for node in script.nodes(ast.BinOp):
        match node:
            case ast.BinOp(left=ast.Name() as sum_, op=operator, right=ast.Name() as count) if isinstance(
                operator, DIVIDES
            ):
                guard = _counted_alone(script, count)
                if guard is None or _counted_alone(script, sum_) is None:
                    continue
                if any(count.id in script.code(each.test) for each in script.guards(node)) or _is_tried(script, node):
                    continue
                if script.all_ranks_reach(node) or script.ranks_of_others_reach(node):
                    yield node, count, guard


def _is_tried(script: Script, node: ast.AST) -> bool:
    return any(isinstance(each, ast.Try) and each.handlers for each in script.tree.above(node))


def _counted_alone(script: Script, name: ast.Name) -> Guard | None:
    """Return the test that lets one rank alone count, where a variable is 0 at first and given nothing else."""
    bindings = script.tree.bindings.get(script.tree.scope(name), {}).get(name.id, [])
    counts = [each.node for each in bindings if isinstance(each.node, ast.AugAssign)]
    zeros = [each for each in bindings if each.node not in counts]
    guards = [script.one_rank_guard(each) for each in counts]
    is_zero = zeros and all(
        isinstance(each.value, ast.Constant) and type(each.value.value) in (int, float) and not each.value.value
        for each in zeros
    )
    is_before = any(each.line < name.lineno and script.one_rank_guard(each.node) is None for each in zeros)
    if not is_zero or not is_before or not guards or any(each is None for each in guards):
        return None
    return guards[0]
