"""Permutations that a script draws by hand, and whether its loop over epochs draws them anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import last_name, spans, tree_of, variables_in

DRAWS = {"randperm", "permutation", "shuffle"}
SEEDS = {"manual_seed", "seed", "default_rng", "RandomState", "Random"}
Loop = (ast.For, ast.While)
Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Drawn:
    """A line that draws a permutation, and how it comes that it is one and the same."""

    number: int
    call: str
    how: str


def drawn_once(file: str, line: int) -> Drawn | None:
    """Return the permutation that the loops around a line take their samples by, if it is the same in each epoch.

    The line may stand in a function that is called there. A permutation that is cut in two, for training and
    validation, says nothing of the order of the training.
    """
    tree = tree_of(file).module
    body, loops = _loops_around(tree, line)
    for call in () if loops else _calls_of_function_around(tree, line):
        if not loops:
            body, loops = _loops_around(tree, call.lineno)
    if not loops:
        return None
    inside = {id(each) for each in _within([loops[0]])}
    calls = [each for each in _within(body) if isinstance(each, ast.Call) and last_name(each.func) in DRAWS]
    anew = [each for each in calls if id(each) in inside]
    if anew:
        fixed = all(_is_seeded_by_a_number(each) and _names_of(each, body) for each in anew)
        return Drawn(anew[0].lineno, ast.unparse(anew[0].func), "from one seed each time") if fixed else None
    for call in calls:
        names = _names_of(call, body)
        is_read = any(variables_in(each) & names for each in _within([loops[0]]))
        if is_read and not _is_cut(names, body, inside):
            return Drawn(call.lineno, ast.unparse(call.func), "once, before the loop over epochs")
    return None


def _loops_around(tree: ast.Module, line: int) -> tuple[list[ast.stmt], list[ast.For | ast.While]]:
    """Return the statements of the innermost function around a line, or of the file, and the loops, outermost first."""
    function = _function_around(tree, line)
    body = function.body if function else tree.body
    return body, [each for each in _within(body) if isinstance(each, Loop) and spans(each, line)]


def _function_around(tree: ast.Module, line: int) -> ast.FunctionDef | None:
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and spans(each, line)]
    return max(functions, key=lambda each: each.lineno, default=None)


def _calls_of_function_around(tree: ast.Module, line: int) -> list[ast.Call]:
    function = _function_around(tree, line)
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    return [each for each in calls if function is not None and last_name(each.func) == function.name]


def _within(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield all that stands in statements, without what functions that are defined there do."""
    waiting: list[ast.AST] = [*nodes]
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, Function):
            waiting += ast.iter_child_nodes(node)


def _is_seeded_by_a_number(call: ast.Call) -> bool:
    """Whether a draw has a generator that is made for it from a seed that is written there."""
    seeds = [each for each in ast.walk(call) if isinstance(each, ast.Call) and last_name(each.func) in SEEDS]
    return bool(seeds) and all(
        len(each.args) == 1 and isinstance(each.args[0], ast.Constant) for each in seeds if not each.keywords
    )


def _names_of(call: ast.Call, body: list[ast.stmt]) -> set[str]:
    """Return the names that hold a permutation, or a part of it by rank, or what was put in order by it in place."""
    in_place = last_name(call.func) == "shuffle"
    names = {each.id for each in call.args[:1] if in_place and isinstance(each, ast.Name)}
    assigned = [each for each in _within(body) if isinstance(each, ast.Assign)]
    names |= {name for each in assigned if call in ast.walk(each.value) for name in _targets(each)}
    for _ in assigned:
        more = {name for each in assigned if variables_in(each.value) & names for name in _targets(each)}
        if more <= names:
            break
        names |= more
    return names


def _targets(node: ast.Assign) -> set[str]:
    return {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _is_cut(names: set[str], body: list[ast.stmt], inside: set[int]) -> bool:
    """Whether a part from one place to another is taken, before the loop."""
    parts = [each for each in _within(body) if isinstance(each, ast.Subscript) and id(each) not in inside]
    return any(
        isinstance(each.slice, ast.Slice) and each.slice.step is None and variables_in(each.value) & names
        for each in parts
    )
