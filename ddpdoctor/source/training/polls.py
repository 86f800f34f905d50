"""Loops that only ask: what they ask for, and whether the loop itself can ever change the answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ddpdoctor.source.text.lines import tree_of
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.training.iterations import loops_around

TELLS = frozenset("sleep print debug info warning error write flush log".split())
ASKS_STORE = frozenset("check get num_keys".split())
FROM_OUTSIDE = frozenset("value is_set".split())
"""Attributes that another process can change: those of multiprocessing's Value and Event."""


class Question(NamedTuple):
    """What a loop asks, and how it says that: ``while`` it holds, or ``until`` it does."""

    asked: ast.expr
    word: str

    def __str__(self) -> str:
        """Return it as it stands there."""
        return f"{self.word} {ast.unparse(self.asked)}"


def question(file: str, line: int) -> Question | None:
    """Return what the innermost loop around a line asks, if that is all it does, but for sleeping and telling.

    It is the condition of the loop, or of the only way out of a ``while True``.
    """
    loop = next(reversed(loops_around(file, line)), None)
    if not isinstance(loop, ast.While):
        return None
    endless = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    body = [each for each in loop.body if not _only_tells(each)]
    if not endless:
        return None if body else Question(loop.test, "while")
    match body:
        case [ast.If(test=test, body=[*_, ast.Break() | ast.Return()], orelse=[])]:
            return Question(test, "until")
        case [ast.Try(body=[tried, *_], handlers=[handler], finalbody=[]) as block] if _leaves(block):
            asked = getattr(tried, "value", None)
            kind = f" no {ast.unparse(handler.type)}" if handler.type else " nothing"
            tries = isinstance(asked, ast.expr) and all(map(_only_tells, handler.body))
            return Question(asked, f"until this raises{kind}:") if tries and asked is not None else None
    return None


def _leaves(block: ast.Try) -> bool:
    """Whether a loop ends where nothing is raised."""
    return isinstance([*block.body, *block.orelse][-1], (ast.Break, ast.Return))


def flag_of(file: str, asked: ast.expr) -> str:
    """Return the variable or attribute that alone is asked for, where the file sets it to constants by its name."""
    if isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not):
        asked = asked.operand
    match asked:
        case ast.Compare(left=left, comparators=[ast.Constant()]):
            asked = left
    match asked:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(), attr=name) if name not in FROM_OUTSIDE:
            is_member = isinstance(asked, ast.Attribute)
            return ast.unparse(asked) if _is_plain(file, name, is_member=is_member) else ""
    return ""


def store_asked(asked: ast.expr) -> str:
    """Return the call by which a condition asks a store of torch, by the name that it has here."""
    for call in ast.walk(asked):
        match call:
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in ASKS_STORE:
                if ast.unparse(owner).rpartition(".")[2].lower().strip("_").endswith("store"):
                    return ast.unparse(call)
    return ""


def _is_plain(file: str, name: str, *, is_member: bool) -> bool:
    """Whether a name is set to a constant somewhere, and is nowhere a function or, of an attribute, a property."""
    tree = tree_of(file)
    functions = (each for each in tree.nodes if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
    if any(each.name == name and isinstance(tree.parents[each], ast.ClassDef) == is_member for each in functions):
        return False
    return any(
        isinstance(value, ast.Constant) and any(_names(target, name) for target in targets)
        for targets, value in _assigned(tree.nodes)
    )


def _assigned(nodes: list[ast.AST]) -> Iterator[tuple[list[ast.expr], ast.expr | None]]:
    for each in nodes:
        if isinstance(each, ast.Assign):
            yield each.targets, each.value
        elif isinstance(each, ast.AnnAssign):
            yield [each.target], each.value


def _names(target: ast.expr, name: str) -> bool:
    match target:
        case ast.Name(id=found) | ast.Attribute(attr=found):
            return found == name
    return False


def _only_tells(each: ast.stmt) -> bool:
    """Whether a statement changes nothing: it sleeps, prints or logs."""
    if isinstance(each, (ast.Pass, ast.Continue)):
        return True
    if not isinstance(each, ast.Expr):
        return False
    calls = [node for node in ast.walk(each) if isinstance(node, ast.Call)]
    inner = [node for node in ast.walk(each) if isinstance(node, (*FUNCTIONS, ast.NamedExpr, ast.Await, ast.Yield))]
    return not inner and all(ast.unparse(node.func).rpartition(".")[2] in TELLS for node in calls)
