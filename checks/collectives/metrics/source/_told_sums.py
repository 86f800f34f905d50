"""Where a source tells a sum: prints or logs it, compares it with the best, or returns it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import by_parameter

from ._reducing import assigned, is_reducing

if TYPE_CHECKING:
    from ddpdoctor.check import Script

WITH_RANK = re.compile(r"rank", re.IGNORECASE)
TOLD_WITH_RANK = r"(?:print|info|log|debug)\([^\n]*\brank\b[^\n]*(?:loss|acc|metric)"
"""What says that a metric is told as that of its rank."""
BEST = re.compile(r"\bbest_|_best\b|\bbest\b|\b(?:min|max|lowest|highest)_", re.IGNORECASE)
"""Names of what a sum is compared with to choose a model by it."""
TELLS = {"print", "info", "log", "write", "append", "add_scalar", "debug"}


def told_after(script: Script, loop: ast.For, held: str) -> ast.AST | None:
    """Return where, after a loop, a sum that it keeps is printed, logged or returned."""
    around = script.function(loop) or script.module
    names = {held}
    for node in script.inside(around):
        if getattr(node, "lineno", 0) <= (loop.end_lineno or 0):
            continue
        read = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if isinstance(node, (ast.Assign, ast.AugAssign)) and names & read:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            filled = [each.value if isinstance(each, ast.Subscript) else each for each in targets]
            names |= {each.id for each in filled if isinstance(each, ast.Name)}
        if names & read and (owner := _filled(node)) is not None:
            names.add(owner)
        if isinstance(node, ast.Compare) and names & read and BEST.search(ast.unparse(node)):
            return node
        if isinstance(node, ast.Return) and names & read:
            return None if re.search(TOLD_WITH_RANK, script.text, re.IGNORECASE) else node
        if isinstance(node, ast.Call) and names & read and tells(node):
            return None if WITH_RANK.search(script.code(node)) else node
        if isinstance(node, ast.Call) and names & read and _is_stepped(script, node):
            return node
        if isinstance(node, ast.Call) and names & read and _is_told_by_helper(script, node, names):
            return node
    return None


def tells(call: ast.Call) -> bool:
    """Whether a call prints or logs what it is given, by its name: also ``log_metrics`` of an own service."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    is_logarithm = name == "log" and (owner in OF_NUMBERS or not (call.args or call.keywords))
    return (name in TELLS and not is_logarithm) or name.startswith(("log_", "report_"))


OF_NUMBERS = {"math", "torch", "np", "numpy", "cmath"}


def _filled(node: ast.AST) -> str | None:
    """Return the dict that a line of its own puts something into: ``results.update(metrics)``."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="update" | "setdefault"))):
            return owner
    return None


def _is_stepped(script: Script, call: ast.Call) -> bool:
    """Whether a call steps a schedule by what it is given: each rank then has a learning rate of its own."""
    return re.search(r"(?:sched|plateau)\w*\.step$", script.code(call.func), re.IGNORECASE) is not None


def _is_told_by_helper(script: Script, call: ast.Call, names: set[str]) -> bool:
    """Whether a call hands a sum to a function of the project that tells it, and not as that of a rank."""
    found = script.defined(call.func)
    if found is None or not isinstance(found[1], ast.FunctionDef) or is_reducing(script, *found):
        return False
    handed = {
        name
        for name, value in by_parameter(found[1], call).items()
        if any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(value))
    }
    for made in sorted(assigned(found[1]), key=lambda each: each.lineno):  # shown = loss.item()
        if handed & {each.id for each in ast.walk(made.value) if isinstance(each, ast.Name)}:
            handed |= {target.id for target in made.targets if isinstance(target, ast.Name)}
    called = [each for each in ast.walk(found[1]) if isinstance(each, ast.Call)]
    telling = [each for each in called if tells(each)]
    read = [{part.id for part in ast.walk(each) if isinstance(part, ast.Name)} for each in telling]
    return any(handed & each for each in read) and not any(WITH_RANK.search(ast.unparse(each)) for each in telling)
