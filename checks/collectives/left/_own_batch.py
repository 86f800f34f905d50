"""Ways past a step that each rank takes by what is in its own batch, as of a loss that is no number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import last_name

from ..._frameworks.accelerate import is_of_several_processes
from ..._scripts.source import engine_of
from ..metrics.source._derived import derived, reads

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

LOOPS = (ast.For, ast.AsyncFor, ast.While)
ASKS = re.compile(r"^(?:item|any|all|isnan|isinf|isfinite)$")
"""Calls by which a test asks for what is in a tensor."""
TOLD = re.compile(r"reduce|gather|broadcast|sync|scatter|all_to_all|agree|barrier", re.IGNORECASE)
"""What can tell a rank what the others have in their batches."""
SHARED_OUT = r"Distributed\w*Sampler"
SEEDED = r"seed"
WRAPPERS = {"DistributedDataParallel", "FullyShardedDataParallel"}


def left_by_own_batch(script: Script, project: Around) -> Iterator[tuple[ast.stmt, ast.expr, ast.Call]]:
    """Yield the ways past a backward, each with the test before it and the backward that the other ranks wait in."""
    if not project.does(SHARED_OUT) and project.does(SEEDED):
        return  # all ranks can have the same batches
    for backward in script.nodes(ast.Call):
        if last_name(backward.func) != "backward" or not isinstance(backward.func, ast.Attribute):
            continue
        loop = _loop_of(script, backward)
        if isinstance(loop, ast.For) and _is_of_several(script, project, loop, backward):
            yield from ((way, test, backward) for way, test in _ways(script, loop, backward))


def _loop_of(script: Script, node: ast.AST) -> ast.AST | None:
    """Return the innermost loop of the same function around a node."""
    loop = next((each for each in script.tree.above(node) if isinstance(each, LOOPS)), None)
    return loop if loop is not None and script.function(loop) is script.function(node) else None


def _is_of_several(script: Script, project: Around, loop: ast.For, backward: ast.Call) -> bool:
    """Whether the gradients of a backward are reduced over ranks: by a wrapper, by DeepSpeed, or by Accelerate."""
    outer = [item for each in script.tree.above(loop) if isinstance(each, ast.With) for item in each.items]
    if any("join" in ast.unparse(each.context_expr).lower() for each in outer):
        return False  # it takes the part of a rank that leaves
    owner = ast.unparse(backward.func.value) if isinstance(backward.func, ast.Attribute) else ""
    if owner in {engine_of(script, each) for each in script.calls("deepspeed.initialize")}:
        return True
    if "accelerator" in owner:
        return is_of_several_processes(script, project)
    return any(isinstance(each, ast.Call) and _is_wrapped(script, each.func) for each in script.inside(*loop.body))


def _is_wrapped(script: Script, node: ast.expr) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    wrap = script.wrap(node)
    return script.is_wrapped_abroad(node) if wrap is None else wrap.kind in WRAPPERS


def _ways(script: Script, loop: ast.For, backward: ast.Call) -> Iterator[tuple[ast.stmt, ast.expr]]:
    names = _of_batch(script, loop)
    for branch in script.inside(*loop.body):
        if not isinstance(branch, ast.If) or branch.lineno > backward.lineno or branch.orelse:
            continue
        way = branch.body[-1]
        if not _is_way(script, way) or _loop_of(script, branch) is not loop or not _asks(branch.test, names):
            continue
        if branch in script.tree.above(backward) or _is_told(script, loop, branch):
            continue
        if any(each.is_rankish(script.tree) for node in (branch, backward) for each in script.guards(node)):
            continue
        yield way, branch.test


def _of_batch(script: Script, loop: ast.For) -> set[str]:
    """Return the names of a loop that hold a batch, or what is made of one; the number of the pass is none."""
    target = loop.target
    counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "enumerate"
    if counted and isinstance(target, ast.Tuple) and target.elts:
        parts: list[ast.expr] = target.elts[1:]
    else:
        parts = [target]
    held = {each.id for part in parts for each in ast.walk(part) if isinstance(each, ast.Name)}
    return derived(script, loop, held, arguments=False)


def _is_way(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement leaves the step, and no launcher ends the other ranks for it as it does for an error."""
    match statement:
        case ast.Continue() | ast.Break() | ast.Return():
            return True
        case ast.Expr(value=ast.Call(func=function, args=[] | [ast.Constant(value=0)])):
            return script.resolve(function) in {"sys.exit", "exit", "quit"}
    return False


def _asks(test: ast.expr, names: set[str]) -> bool:
    """Whether a test asks for what is in a tensor of these names."""
    calls = [each for each in ast.walk(test) if isinstance(each, ast.Call)]
    return any(ASKS.match(last_name(each.func) or "") is not None and reads(each, names) for each in calls)


def _is_told(script: Script, loop: ast.For, branch: ast.If) -> bool:
    """Whether something before a test can have put the ranks' values together, or stands in its branch."""
    before = (each for each in script.inside(*loop.body) if isinstance(each, ast.Call))
    return any(TOLD.search(ast.unparse(each.func)) for each in before if each.lineno <= (branch.end_lineno or 0))
