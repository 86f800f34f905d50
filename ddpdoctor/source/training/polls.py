"""Loops that only ask: what they ask for, and whether the loop itself can ever change the answer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import tree_of
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.training.iterations import loops_around

if TYPE_CHECKING:
    from collections.abc import Iterator

TELLS = frozenset("sleep print debug info warning error write flush log".split())
ASKS_STORE = frozenset("check get num_keys".split())
NUMBERS = frozenset("time monotonic perf_counter min max len int round".split())
"""Functions that tell a number, and change nothing."""
FROM_OUTSIDE = frozenset("value is_set".split())
"""Attributes that another process can change: those of multiprocessing's Value and Event."""


SMALL = 6  # statements


class Question(NamedTuple):
    """What a loop asks, and how it says that: ``while`` it holds, or ``until`` it does.

    ``counts`` are the variables in which it counts how often, or for how long; ``limited``: it raises by them.
    """

    asked: ast.expr
    word: str
    counts: frozenset[str] = frozenset()
    limited: bool = False

    def __str__(self) -> str:
        """Return it as it stands there."""
        return f"{self.word} {ast.unparse(self.asked)}"


def question(file: str, line: int) -> Question | None:
    """Return what the innermost loop around a line asks, if that is all it does but sleep, count and tell.

    It is the condition of the loop, or of the only way out of a ``while True``; no count of its own decides it.
    """
    loop = next(reversed(loops_around(file, line)), None)
    found = _asked(loop) if isinstance(loop, ast.While) else None
    if loop is None or found is None:
        return None
    counts = frozenset(filter(None, map(_counted, ast.walk(loop))))
    if any(isinstance(each, ast.Name) and each.id in counts for each in ast.walk(found.asked)):
        return None
    return found._replace(counts=counts, limited=any(map(_is_limit, loop.body)))


def search(file: str, line: int) -> Question | None:
    """Return what a small ``while True`` around a line tries until it finds it: its only way out is one test."""
    loop = next(reversed(loops_around(file, line)), None)
    if not isinstance(loop, ast.While) or not _is_endless(loop) or len(loop.body) > SMALL:
        return None
    ways = [each for each in ast.walk(loop) if isinstance(each, (ast.Break, ast.Return, ast.Raise, ast.Yield))]
    tests = [each for each in loop.body if isinstance(each, ast.If) and set(ways) <= {*ast.walk(each)}]
    return Question(tests[0].test, "until") if len(ways) == 1 and tests and not tests[0].orelse else None


def _is_endless(loop: ast.While) -> bool:
    return isinstance(loop.test, ast.Constant) and bool(loop.test.value)


def _asked(loop: ast.While) -> Question | None:
    body = [each for each in loop.body if not (_only_tells(each) or _is_limit(each))]
    if not _is_endless(loop):
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
    """Whether a statement changes nothing but a count: it sleeps, prints or logs, perhaps now and then."""
    if isinstance(each, (ast.Pass, ast.Continue)) or _counted(each):
        return True
    if isinstance(each, ast.If):
        return _is_number(each.test) and all(map(_only_tells, [*each.body, *each.orelse]))
    if not isinstance(each, ast.Expr):
        return False
    calls = [node for node in ast.walk(each) if isinstance(node, ast.Call)]
    inner = [node for node in ast.walk(each) if isinstance(node, (*FUNCTIONS, ast.NamedExpr, ast.Await, ast.Yield))]
    return not inner and all(_called(node) in TELLS | NUMBERS for node in calls)


def _is_limit(each: ast.stmt) -> bool:
    """Whether a statement raises where a count, or the clock, is above a limit."""
    return isinstance(each, ast.If) and _is_number(each.test) and isinstance(each.body[-1], ast.Raise)


def _counted(each: ast.AST) -> str:
    """Return the variable that a statement sets to a number made of numbers; empty where it does anything else."""
    match each:
        case (
            ast.AugAssign(target=ast.Name(id=name), value=value)
            | ast.Assign(targets=[ast.Name(id=name)], value=value)
        ) if _is_number(value):  # fmt: skip
            return name
    return ""


def _is_number(value: ast.expr) -> bool:
    """Whether an expression computes with numbers and names alone, and calls nothing that could change anything."""
    return all(
        _called(each) in NUMBERS if isinstance(each, ast.Call) else not isinstance(each, (*FUNCTIONS, ast.NamedExpr))
        for each in ast.walk(value)
    ) and not isinstance(value, (ast.List, ast.Dict, ast.Set))


def _called(call: ast.Call) -> str:
    return last_name(call.func)
