"""The ways of a program that exclude each other: with ranks, and without."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.text.names import resolve

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
