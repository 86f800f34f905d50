"""The ways of a program that exclude each other: with ranks, and without."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import given, keyword
from ddpdoctor.source.reach.alone import SEVERAL
from ddpdoctor.source.reach.guards import guards
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
    said; not where its name says that it trains, or is about several.
    """
    switch = _option(tree, guard.test) if guard.holds and not TRAINS.search(ast.unparse(guard.test)) else None
    action = keyword(switch, "action") if switch is not None else None
    if not isinstance(action, ast.Constant) or action.value != "store_true":
        return False
    starts = [each for each in tree.of(ast.Call) if resolve(tree, each.func) in SPAWN]
    counts = [_option(tree, count) for each in starts if (count := given(each, 2, "nprocs")) is not None]
    return bool(counts) and all(count is not None and _is_one(keyword(count, "default")) for count in counts)


TRAINS = re.compile(rf"train|resume|{SEVERAL.pattern}", re.IGNORECASE)


def _option(tree: Tree, node: ast.expr) -> ast.Call | None:
    return options(tree).get(node.attr) if isinstance(node, ast.Attribute) else None


def _is_one(default: ast.expr | None) -> bool:
    return isinstance(default, ast.Constant) and default.value == 1
