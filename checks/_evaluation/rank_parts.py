"""Loops over a rank's part that the script has cut by hand, and what becomes of what they count, as the source says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import Site, last_name

from .._ledgers.cut import is_cut
from .metrics import part_around

TOGETHER = re.compile(r"reduce|gather|sync|broadcast|psum|exchange|collect|consensus", re.IGNORECASE)
MEANS = {"mean", "fmean", "average"}
TELLS = frozenset("print info debug warning log append max min float round format write add_scalar setdefault".split())
UNTRAINED = {"no_grad", "inference_mode", "eval"}
NO_GRADIENTS = re.compile(r"no_grad|inference_mode")
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Told:
    """A loop over a rank's part, what it counts, and the line that returns a mean of it."""

    loop: int
    counted: str
    line: int


def listed_by_rank(around: ast.AST, name: str) -> int:
    """Return the line of the loop over a rank's part in which a list grows by one thing a pass; 0 without one."""
    given = [
        each.value
        for each in ast.walk(around)
        if isinstance(each, ast.Assign) and any(ast.unparse(to) == name for to in each.targets)
    ]
    if not given or not all(isinstance(each, ast.List) and not each.elts for each in given):
        return 0
    for loop in _by_rank(around):
        if any(_appends(each, name) for statement in loop.body for each in ast.walk(statement)):
            return loop.lineno
    return 0


def told_alone(module: ast.Module) -> Iterator[Told]:
    """Find functions that evaluate a rank's part, bring nothing together, and return a mean of what they counted.

    Nor does anything that calls them in this file bring the result together.
    """
    for function in (each for each in ast.walk(module) if isinstance(each, Function)):
        inside = list(ast.walk(function))
        calls = [each for each in inside if isinstance(each, ast.Call)]
        if any(TOGETHER.search(last_name(each.func)) for each in calls) or not _evaluates(function, calls):
            continue
        returns = [each for each in inside if isinstance(each, ast.Return) and each.value is not None]
        for loop in _by_rank(function):
            counted = _counted(loop)
            line = next((found for each in returns if (found := _mean_of(each, counted, function))), 0)
            if line and _is_kept(function.name, module):
                yield Told(loop.lineno, min(counted), line)
                break


def is_untrained(around: ast.AST) -> bool:
    """Whether a function computes without gradients: one that asks for some trains, whatever else it does without."""
    calls = [each for each in ast.walk(around) if isinstance(each, ast.Call)]
    trains = any(isinstance(each.func, ast.Attribute) and each.func.attr == "backward" for each in calls)
    return isinstance(around, Function) and not trains and _evaluates(around, calls)


def untrained_part(site: Site) -> ast.AST | None:
    """Return the function that a line stands in, or the ``with`` block in it, that computes without gradients."""
    around = part_around(site)
    if is_untrained(around):
        return around
    blocks = [
        each
        for each in ast.walk(around)
        if isinstance(each, ast.With)
        and each.lineno <= site.line <= (each.end_lineno or 0)
        and any(NO_GRADIENTS.search(ast.unparse(item.context_expr)) for item in each.items)
    ]
    return blocks[-1] if blocks else None


def whole_loop(site: Site) -> Site | None:
    """Return the loop that a line follows in its function, the last one that ends before it."""
    loops = [each for each in ast.walk(part_around(site)) if isinstance(each, ast.For)]
    ended = [each for each in loops if (each.end_lineno or 0) < site.line and each.col_offset]
    outer = [each for each in ended if not any(one is not each and each in ast.walk(one) for one in ended)]
    return site._replace(line=outer[-1].lineno) if outer else None


def _by_rank(around: ast.AST) -> list[ast.For]:
    loops = [each for each in ast.walk(around) if isinstance(each, ast.For)]
    return [each for each in loops if any(is_cut(part) for part in ast.walk(each.iter))]


def _appends(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="append")):
            return ast.unparse(owner) == name
    return False


def _evaluates(function: ast.FunctionDef | ast.AsyncFunctionDef, calls: list[ast.Call]) -> bool:
    """Whether a function computes without gradients."""
    said = [*calls, *function.decorator_list]
    return any(last_name(each.func if isinstance(each, ast.Call) else each) in UNTRAINED for each in said)


def _counted(loop: ast.For) -> set[str]:
    """Return the lists and sums that grow in a loop."""
    nodes = [each for statement in loop.body for each in ast.walk(statement)]
    grown = {each.target.id for each in nodes if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name)
             and isinstance(each.op, ast.Add)}  # fmt: skip
    lists = {
        each.func.value.id
        for each in nodes
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr == "append"
        and isinstance(each.func.value, ast.Name)
    }
    begun = {each.id for one in nodes if isinstance(one, ast.Assign) for to in one.targets for each in ast.walk(to)
             if isinstance(each, ast.Name)}  # fmt: skip
    return (grown | lists) - begun


def _mean_of(told: ast.Return, counted: set[str], function: ast.AST) -> int:
    """Return the line with which a mean of what was counted is taken, or returned; 0 for anything else."""
    value, line = told.value, told.lineno
    for _ in range(2):  # a name is followed to what it was given
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item":
            value = value.func.value
        if not isinstance(value, ast.Name) or value.id in counted:
            break
        given = [each for each in ast.walk(function) if isinstance(each, ast.Assign)
                 and any(isinstance(to, ast.Name) and to.id == value.id for to in each.targets)]  # fmt: skip
        if len(given) != 1:
            return 0
        value, line = given[0].value, given[0].lineno
    if value is None or isinstance(value, ast.Name):
        return 0
    names = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    names |= {
        part.id
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and any(isinstance(to, ast.Name) and to.id in names for to in each.targets)
        for part in ast.walk(each.value)
        if isinstance(part, ast.Name)
    }
    divides = any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div) for each in ast.walk(value))
    means = any(isinstance(each, ast.Call) and last_name(each.func) in MEANS for each in ast.walk(value))
    return line if names & counted and (divides or means) else 0


def _is_kept(name: str, module: ast.Module) -> bool:
    """Whether a file calls a function, and gives what it returns to nothing that could bring it together."""
    nodes = list(ast.walk(module))
    calls = [each for each in nodes if isinstance(each, ast.Call) and last_name(each.func) == name]
    values = [each for each in nodes if isinstance(each, (ast.Assign, ast.AnnAssign, ast.Return)) and each.value]
    holding = [each for each in values if each.value and any(part in calls for part in ast.walk(each.value))]
    if not calls or any(isinstance(each, ast.Return) for each in holding):
        return False  # who is given it is not looked for
    names = {
        part.id for each in holding for to in _targets(each) for part in ast.walk(to) if isinstance(part, ast.Name)
    }
    own = {each.name: each for each in nodes if isinstance(each, Function)}
    for each in nodes:
        if not isinstance(each, ast.Call) or each in calls:
            continue
        inside = [part for given in (*each.args, *each.keywords) for part in ast.walk(given)]
        takes = any(part in calls or (isinstance(part, ast.Name) and part.id in names) for part in inside)
        if takes and not _only_tells(last_name(each.func), own):
            return False
    return True


def _targets(node: ast.Assign | ast.AnnAssign | ast.Return) -> list[ast.expr]:
    if isinstance(node, ast.Return):
        return []
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _only_tells(name: str, own: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> bool:
    """Whether a function that is called tells what it is given, or compares it: one of the file's reduces nothing."""
    if name in own:
        called = (each for each in ast.walk(own[name]) if isinstance(each, ast.Call))
        return not any(TOGETHER.search(last_name(each.func)) for each in called)
    return name in TELLS
