"""Groups that a source lets only some ranks make, though each call of new_group is one of all ranks of the job."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Fact, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Script

NEW_GROUP = "torch.distributed.new_group"


def made_by_some_in(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls of new_group that only some ranks come to, each with the test that lets them through.

    Not those with ``use_local_synchronization``, which the members of a group alone are to call.
    """
    for call in script.calls(NEW_GROUP):
        if keyword(call, "use_local_synchronization") is not None or _is_made_otherwise(script, call):
            continue
        test = next((each.test for each in script.guards(call) if _lets_some(script, each.test)), None)
        if test is not None:
            yield call, test


def _is_made_otherwise(script: Script, call: ast.Call) -> bool:
    """Whether another branch makes the same group, so that all ranks do."""
    others = [each for each in script.calls(NEW_GROUP) if script.function(each) is script.function(call)]
    return any(each is not call and ast.dump(each) == ast.dump(call) for each in others)


def _lets_some(script: Script, test: ast.expr) -> bool:
    """Whether a test passes on some ranks and not on others, by their numbers."""
    match test:
        case ast.BoolOp(op=ast.And(), values=parts):
            return any(_lets_some(script, each) for each in parts)
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[ranks]):
            return script.fact(left) is Fact.RANK and _are_some(script, ranks)
        case ast.Compare(left=ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv()), ops=[ast.Eq() | ast.NotEq()]):
            return script.fact(left) is Fact.RANK
        case ast.Compare(left=left, ops=[ast.Lt() | ast.GtE()], comparators=[limit]):
            return script.fact(left) is Fact.RANK and _is_within(script, limit)
    return False


def _are_some(script: Script, ranks: ast.expr) -> bool:
    """Whether ranks are written out, or those of one group of several that a loop goes through."""
    value = script.value(ranks)
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return all(isinstance(each, ast.Constant) for each in value.elts)
    bound = script.tree.lookup(ranks.id, ranks) if isinstance(ranks, ast.Name) else []
    return len(bound) == 1 and any(
        isinstance(each, ast.For) for each in (bound[0].node, *script.tree.above(bound[0].node))
    )


def _is_within(script: Script, limit: ast.expr) -> bool:
    """Whether a number is more than 0, and no more than a part of the ranks."""
    value = script.value(limit)
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int) and value.value > 0
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv) and isinstance(value.right, ast.Constant)
