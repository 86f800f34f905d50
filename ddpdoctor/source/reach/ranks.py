"""Which lines of a script only some ranks reach."""

from __future__ import annotations

import ast
import functools
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.source.reach.guards import guards, made_by_one_rank
from ddpdoctor.source.reach.reached import guards_at
from ddpdoctor.source.reach.who import DECORATORS, ONE_RANK, OTHER_RANKS
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import statement_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.syntax import parsed
from ddpdoctor.source.text.tree import FUNCTIONS, Tree
from ddpdoctor.source.values.bound import values
from ddpdoctor.source.values.sites import bare

if TYPE_CHECKING:
    from collections.abc import Iterator

RANK_WORDS = ("rank", "is_main", "is_master", "main_process", "process_index", "process_zero", "global_zero")


class RankBlock(NamedTuple):
    """A branch of an ``if`` whose test depends on the rank: what holds in it, the file, the first line and the last."""

    test: str
    file: str
    first: int
    last: int

    def holds(self, file: str, line: int) -> bool:
        """Whether a line stands in it."""
        return file == self.file and self.first <= line <= self.last


@functools.cache
def rank_block(file: str, line: int, *, otherwise: bool = False) -> RankBlock | None:
    """Return the innermost such body around a line; what stands under ``else`` as well, if that is asked for."""
    found = None
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.If) and is_about_rank(file, node.test):
            branches = [(node.test, node.body)]
            if otherwise and node.orelse:
                branches.append((ast.UnaryOp(ast.Not(), node.test), node.orelse))
            for test, branch in branches:
                first, last = branch[0].lineno, branch[-1].end_lineno or 0
                if first <= line <= last:
                    found = RankBlock(ast.unparse(test), file, first, last)
    return found


def one_rank_only(file: str, line: int) -> str:
    """Return in words what lets one rank alone come to a line of a file: a test, an early return, a decorator.

    Empty where there is nothing of the kind, or where it is not certain: a test about a name that is not known.
    """
    tree = tree_of(file)
    statement = statement_at(tree, line)
    if statement is None:
        return ""
    ways = (_tests(tree, line), _decorators(tree, statement), _registrations(tree, statement), _made(tree, statement))
    return next(chain(*ways), "")


def rank_given_at(file: str, line: int) -> tuple[str, int] | None:
    """Return what gives an attribute its value by whose test one rank alone comes to a line, and where.

    That is ``self.is_chief = dist.get_rank() == 0`` of the test ``if not self.is_chief: return``.
    """
    tree = tree_of(file)
    statement = statement_at(tree, line)
    for guard in guards(tree, statement) if statement is not None else ():
        for node in ast.walk(guard.test) if guard.who(tree) == ONE_RANK else ():
            held = values(tree, node) if isinstance(node, ast.Attribute) else []
            if len(held) == 1 and held[0].value is not None:
                return f"{ast.unparse(node)} = {ast.unparse(held[0].value)}", held[0].line
    return None


def other_ranks_only(file: str, line: int) -> bool:
    """Whether a test keeps one rank away from a line of a file, for certain."""
    tree = tree_of(file)
    return any(guard.who(tree) == OTHER_RANKS for guard in guards_at(tree, line))


def _tests(tree: Tree, line: int) -> Iterator[str]:
    for guard in guards_at(tree, line):
        if guard.who(tree) == ONE_RANK:
            yield guard.words


def _decorators(tree: Tree, statement: ast.stmt) -> Iterator[str]:
    function = next((each for each in tree.above(statement) if isinstance(each, FUNCTIONS)), None)
    for decorator in getattr(function, "decorator_list", ()):
        named = ast.unparse(bare(decorator))
        if DECORATORS.search(resolve(tree, bare(decorator)) or named):
            yield f"in {getattr(function, 'name', '')}(), which `@{named}` runs on one rank alone"


def _registrations(tree: Tree, statement: ast.stmt) -> Iterator[str]:
    """Yield the test under which a function is handed over, as a hook is, where it is used nowhere else."""
    function = next((each for each in tree.above(statement) if isinstance(each, FUNCTIONS)), None)
    name = getattr(function, "name", "")
    uses = [
        node
        for node in tree.of(ast.Name)
        if name and node.id == name and any(each.node is function for each in tree.lookup(name, node))
    ]
    tests = [
        next((guard for guard in guards(tree, each) if guard.who(tree) == ONE_RANK), None)
        for each in uses
        if isinstance(call := tree.parents.get(each), ast.Call) and each in call.args
    ]
    if uses and len(tests) == len(uses) and all(tests) and tests[0] is not None:
        test = " ".join(ast.unparse(tests[0].test).split())
        yield f"in {name}(), which is registered under `if {test}` alone"


def _made(tree: Tree, statement: ast.stmt) -> Iterator[str]:
    """Yield the test under which a function is made around a line, as a handler is: there is none on other ranks."""
    for function, guard in made_by_one_rank(tree, statement):
        yield f"in {getattr(function, 'name', 'a lambda')}(), which is made {guard.words}"


def is_about_rank(file: str, test: ast.expr) -> bool:
    """Whether a test of a file depends on the rank, by a word in it or in what its names are assigned from."""
    used = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
    return any(word in ast.unparse(test).lower() for word in RANK_WORDS) or bool(used & _rank_names(file))


@functools.cache
def condition_of_callers(file: str, function: str) -> str:
    """Return a condition on the rank that every call of a function in its file is under; empty where there is none."""
    calls = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.Call) and last_name(node.func) == function]
    tests = [rank_condition(file, call.lineno) for call in calls]
    return tests[0] if all(tests) and tests else ""


@functools.cache
def one_rank_calls(file: str, function: str) -> str:
    """Return in words what lets one rank alone call a function of a file, by itself or by a function that calls it.

    Empty where a call of that name is not of one rank alone, or the file has none.
    """
    return _one_rank_calls(file, function, ())


def _one_rank_calls(file: str, function: str, callees: tuple[str, ...]) -> str:
    tree = tree_of(file)
    found = []
    for call in tree.of(ast.Call):
        if last_name(call.func) == function:
            within = next((getattr(each, "name", "") for each in tree.above(call) if isinstance(each, FUNCTIONS)), "")
            guard = one_rank_only(file, call.lineno)
            if not guard and within and within not in {function, *callees}:
                guard = _one_rank_calls(file, within, (*callees, function))
            found.append(guard)
    return found[0] if found and all(found) else ""


def rank_condition(file: str, line: int) -> str:
    """Return the test of the innermost ``if`` around a line that depends on the rank; empty where there is none."""
    block = rank_block(file, line)
    return block.test if block else ""


def are_alternatives(file: str, one: int, other: int) -> bool:
    """Whether two lines stand in the two branches of one ``if``."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.If) and node.orelse:
            sides = [(block[0].lineno, block[-1].end_lineno or 0) for block in (node.body, node.orelse)]
            within = [{line for line in (one, other) if first <= line <= last} for first, last in sides]
            if {one} in within and {other} in within and one != other:
                return True
    return False


@functools.cache
def both_in_other_order(file: str, one: tuple[int, str], other: tuple[int, str]) -> str:
    """Return the test of an ``if`` in whose two branches two lines stand, where each branch has the calls of both.

    A line comes with the name of what is called there: others stand beside it.
    """
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.If) and node.orelse:
            sides = [_calls_by_line(block) for block in (node.body, node.orelse)]
            for here, there in (sides, sides[::-1]):
                first, second = _of_name(here, *one), _of_name(there, *other)
                in_both = {text for calls in here.values() for text in calls}
                in_both &= {text for calls in there.values() for text in calls}
                if first & in_both and second & in_both and not first & second:
                    return ast.unparse(node.test)
    return ""


def _of_name(calls: dict[int, set[str]], line: int, name: str) -> set[str]:
    return {text for text in calls.get(line, ()) if text.partition("(")[0].rpartition(".")[2] == name}


def _calls_by_line(block: list[ast.stmt]) -> dict[int, set[str]]:
    """Return the text of the calls of a block, by their line."""
    found: dict[int, set[str]] = {}
    for statement in block:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                found.setdefault(node.lineno, set()).add(ast.unparse(node))
    return found


@functools.cache
def _rank_names(file: str) -> frozenset[str]:
    """Return the variables of a file that are assigned from something about the rank."""
    return frozenset(
        target.id
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Assign) and "rank" in ast.unparse(node.value).lower()
        for target in node.targets
        if isinstance(target, ast.Name)
    )
