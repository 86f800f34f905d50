"""What guards a line: the tests around its statement, and those within it that all of its calls stand behind."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.alike import answers_alike
from ddpdoctor.source.reach.guards import Guard, guards
from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.lines import statement_at, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

NUMBERS = frozenset({"random", "math", "time", "np", "numpy"})
BUILT_IN = frozenset("abs all any bool float getattr hasattr int isinstance len max min round sum".split())
OF_VALUES = frozenset(
    "all any dim get isfinite isinf isnan item max mean min norm numel size startswith sum tolist "
    "get_rank get_local_rank get_node_local_rank get_world_rank get_world_size is_available is_initialized "
    "is_local_process_zero is_world_process_zero local_rank rank".split()
)
"""What calls in a test that lets no rank wait for another."""


def guards_at(tree: Tree, line: int) -> Iterator[Guard]:
    """Yield what guards a line of a function, innermost first; also within it: ``call() if test else 0``."""
    statement = statement_at(tree, line)
    if statement is None:
        return
    yield from _within(tree, statement, line)
    yield from guards(tree, statement)


def tests_around(file: str, line: int) -> list[str]:
    """Return what must be true for a line of a function to be reached, innermost first, as it is written there."""
    found = guards_at(tree_of(file), line)
    return [ast.unparse(each.test if each.holds else _negated(each.test)) for each in found]


def decided_at(file: str, line: int, loop: int = 0) -> list[Guard]:
    """Return what decides whether a line of a function is reached, innermost first, where ranks can answer otherwise.

    Of a line in a loop, whose first line can be given, nothing that is decided before that. What raises is left out.
    """
    tree = tree_of(file)
    return [
        each
        for each in guards_at(tree, line)
        if each.test.lineno > loop and not _raises(tree, each) and not answers_alike(tree, each.test)
    ]


def _within(tree: Tree, statement: ast.stmt, line: int) -> list[Guard]:
    """Return the tests of a statement that all calls on the line stand behind, those in the tests themselves aside."""
    around = {id(each.test) for each in guards(tree, statement)}
    calls = [each for each in _calls(statement) if each.lineno <= line <= (each.end_lineno or line)]
    found = [[each for each in guards(tree, call) if id(each.test) not in around] for call in calls]
    tests = {id(part) for own in found for each in own for part in ast.walk(each.test)}
    behind = [own for own, call in zip(found, calls, strict=True) if id(call) not in tests]
    common = behind[0] if behind else []
    for own in behind[1:]:
        common = [each for each in common if each in own]
    return common if all(map(_waits_for_nobody, common)) else []


def _calls(statement: ast.stmt) -> list[ast.Call]:
    """Return the calls of a statement, of a block those in its head."""
    match statement:
        case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head):
            heads: list[ast.AST] = [head]
        case ast.With(items=items):
            heads = list(items)
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef() | ast.Try():
            heads = []
        case _:
            heads = [statement]
    return [node for each in heads for node in ast.walk(each) if isinstance(node, ast.Call)]


def _waits_for_nobody(guard: Guard) -> bool:
    """Whether no call of a test can be the one in which the rank is."""
    names = [dotted(each.func) or "" for each in ast.walk(guard.test) if isinstance(each, ast.Call)]
    return all(
        name in BUILT_IN or name.partition(".")[0] in NUMBERS or ("." in name and name.rpartition(".")[2] in OF_VALUES)
        for name in names
    )


def _raises(tree: Tree, guard: Guard) -> bool:
    """Whether who does not pass a test raises an exception there."""
    branch = tree.parents.get(guard.test)
    away = (branch.orelse if guard.holds else branch.body) if isinstance(branch, ast.If) else []
    return bool(away) and isinstance(away[-1], ast.Raise)


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)
