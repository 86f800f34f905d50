"""The ways of a program that exclude each other: with ranks, and without."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import given, keyword
from ddpdoctor.source.reach.alone import SEVERAL
from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.parsed import options
from ddpdoctor.source.values.sites import SPAWN

if TYPE_CHECKING:
    from ddpdoctor.source.reach.guards import Guard
    from ddpdoctor.source.text.tree import Tree


def is_without_group(tree: Tree, guard: Guard) -> bool:
    """Whether a test lets through only where the file does not make its process group.

    That is one that says the contrary of what stands around it there, or compares the same thing with another literal:
    ``mode == "one"`` where the group is made behind ``mode == "many"``.
    """
    if any(isinstance(each, ast.Call) for each in ast.walk(guard.test)):
        return False  # what it returns can be another by then
    groups = [each for each in tree.of(ast.Call) if resolve(tree, each.func) == "torch.distributed.init_process_group"]
    return bool(groups) and all(any(_exclude(guard, other) for other in guards(tree, each)) for each in groups)


def _exclude(one: Guard, other: Guard) -> bool:
    if one.holds != other.holds:
        return ast.dump(one.test) == ast.dump(other.test)
    match one.test, other.test:
        case (
            ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=first)]),
            ast.Compare(left=right, ops=[ast.Eq()], comparators=[ast.Constant(value=second)]),
        ):
            return one.holds and ast.dump(left) == ast.dump(right) and first != second
    return False


def is_of_one_process(tree: Tree, guard: Guard) -> bool:
    """Whether a test asks for a switch that is off unless it is given, in a file that starts one rank unless told more.

    What such a switch stands for, as to write a cache or to evaluate, is done by one process where nothing else is
    said; not where its name says that it trains, or is about several. Where it is the launcher that starts more ranks,
    and an option that tells the file of it, that holds for what ends the program, in place of the training.
    """
    if not guard.holds or TRAINS.search(ast.unparse(guard.test)) or not _asks_for_what_is_off(tree, guard.test):
        return False
    starts = [each for each in tree.of(ast.Call) if resolve(tree, each.func) in SPAWN]
    counts = [_option(tree, count) for each in starts if (count := given(each, 2, "nprocs")) is not None]
    if counts:
        return all(count is not None and _is_one(keyword(count, "default")) for count in counts)
    return not starts and _ends_there(tree, guard) and any(_joins_if_told(tree, each) for each in tree.of(ast.If))


def _asks_for_what_is_off(tree: Tree, test: ast.expr) -> bool:
    """Whether a test holds where an option is given that is off, or None, unless it is."""
    match test:
        case ast.BoolOp(op=operator, values=parts):
            several = all if isinstance(operator, ast.Or) else any
            return several(_asks_for_what_is_off(tree, each) for each in parts)
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            switch = _option(tree, left)
            return switch is not None and _is(keyword(switch, "default"), None)
    switch = _option(tree, test)
    if switch is None:
        return False
    return _is(keyword(switch, "action"), "store_true") or _is(keyword(switch, "default"), None)


def _ends_there(tree: Tree, guard: Guard) -> bool:
    branch = tree.parents.get(guard.test)
    return isinstance(branch, ast.If) and isinstance(branch.body[-1], ast.Return)


def _joins_if_told(tree: Tree, branch: ast.If) -> bool:
    """Whether ranks find each other in a branch that an option opens, which is said to be about one process else."""
    match branch.test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as how], comparators=[ast.Constant(value=str(value))]):
            told = _option(tree, left)
            if told is None or not SEVERAL.search(ast.unparse(left)) or not _is(keyword(told, "default"), value):
                return False
            several = branch.orelse if isinstance(how, ast.Eq) else branch.body
        case ast.Attribute():
            told = _option(tree, branch.test)
            if told is None or not SEVERAL.search(branch.test.attr) or not _is(keyword(told, "action"), "store_true"):
                return False
            several = branch.body
        case _:
            return False
    calls = [call for each in several for call in ast.walk(each) if isinstance(call, ast.Call)]
    return any("init" in last_name(each.func) for each in calls)


TRAINS = re.compile(rf"train|resume|{SEVERAL.pattern}", re.IGNORECASE)


def _option(tree: Tree, node: ast.expr) -> ast.Call | None:
    return options(tree).get(node.attr) if isinstance(node, ast.Attribute) else None


def _is(value: ast.expr | None, what: object) -> bool:
    return isinstance(value, ast.Constant) and value.value == what


def _is_one(default: ast.expr | None) -> bool:
    return _is(default, 1)
