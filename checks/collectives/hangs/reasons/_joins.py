"""Join: collectives of the script's own within it, and ranks that enter it where others do not."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddpdoctor.check import (
    Communication,
    Joined,
    JoinEntered,
    Site,
    Training,
    calls_at,
    last_name,
    tree_of,
    withs_around,
)

from .._pairs import met_elsewhere

STEPS_BY = "broadcast"  # by which ZeroRedundancyOptimizer hands round what each rank has updated
JOIN = re.compile(r"(?:^|\.)(?:Join|join)$")


class InJoin(NamedTuple):
    """A call within Join: the rank, the call, the code that begins Join; what it met, and on which rank.

    ``left_out`` is the optimizer whose step makes the call, and which Join was not given; empty where the line of the
    script makes it by itself.
    """

    rank: int
    call: Communication
    join: str
    other: int
    met: Communication
    left_out: str = ""


def met_in_join(recent: Mapping[int, Sequence[Communication]]) -> InJoin | None:
    """Find the first call within Join that met a call of another line, by the last communications of each rank."""
    for rank, call, other, met in met_elsewhere(recent):
        if found := _join(call):
            return InJoin(rank, call, found[0], other, met, found[1])
    return None


def joined_by_some(training: Training) -> tuple[dict[int, JoinEntered], tuple[int, ...]] | None:
    """Return who has entered Join, and who of its group never has; None where all have, or nobody."""
    entered = training.by_rank(JoinEntered)
    members = {rank for each in entered.values() for rank in each.group}
    others = tuple(sorted((training.by_rank(Joined).keys() & members) - entered.keys()))
    return (entered, others) if entered and others else None


def _join(call: Communication) -> tuple[str, str] | None:
    """Return the Join around a collective that it does not answer, and the optimizer that it was not given."""
    if call.site is None:
        return None
    functions = [ast.unparse(each.func) for each in calls_at(call.site.file, call.site.line)]
    by_script = call.operation in {each.rpartition(".")[2] for each in functions}
    on_line = [each for each in tree_of(call.site.file).of(ast.Call) if each.lineno == call.site.line]
    others = [ast.unparse(each.func) for each in on_line]
    steps = [each.removesuffix(".step") for each in others if each.endswith(".step")]
    only_steps = all(each.endswith((".step", ".zero_grad")) for each in others)
    around = withs_around(call.site.file, call.site.line)
    if by_script and not around:
        around = _around_callers(call.site)
    for node in around:
        for item in node.items:
            code = ast.unparse(item.context_expr)
            made = item.context_expr
            if not isinstance(made, ast.Call) or not JOIN.search(ast.unparse(made.func)) or "throw_on_early" in code:
                continue
            if by_script:
                return code, ""
            left_out = [each for each in steps if each not in _given(made)] if _given(made) else []
            if call.operation == STEPS_BY and only_steps and len(left_out) == 1:
                return code, left_out[0]
    return None  # a forward, or a step, which Join shadows


def _around_callers(site: Site) -> list[ast.With]:
    """Return the `with` statements around the calls of the function that a line is in, where all are within some."""
    tree, name = tree_of(site.file), site.function.rpartition(".")[2]
    if sum(each.name == name for each in tree.of(ast.FunctionDef)) != 1:
        return []
    calls = [withs_around(site.file, each.lineno) for each in tree.of(ast.Call) if last_name(each.func) == name]
    return calls[0] if calls and all(calls) else []


def _given(join: ast.Call) -> list[str]:
    """List what Join is given, where its list is written out."""
    match join:
        case ast.Call(args=[ast.List(elts=elements), *_]):
            return [ast.unparse(each) for each in elements]
    return []
