"""Lines that a training of several ranks does not come to, since the program ends where it finds that it is one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.guards import ends, guards
from ddpdoctor.source.reach.rank_facts import Fact, fact
from ddpdoctor.source.values.sites import some_sites

if TYPE_CHECKING:
    from ddpdoctor.source.reach.guards import Guard
    from ddpdoctor.source.text.tree import Tree


def is_refused(tree: Tree, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether several ranks end before they come to a node: ``if world_size != 1: raise`` stands on every way to it."""
    if any(_ends_several(tree, each) for each in guards(tree, node)):
        return True
    function = tree.function(node)
    if function is None or function in seen:
        return False
    seen |= {function}
    if function in tree.parents and is_refused(tree, function, seen):
        return True  # it is defined behind the test
    abroad = tree.callers(function) if tree.callers is not None and isinstance(function, ast.FunctionDef) else []
    sites = [*((tree, each) for each in some_sites(tree, function)), *abroad]
    return bool(sites) and all(is_refused(there, each, seen) for there, each in sites)


def _ends_several(tree: Tree, guard: Guard) -> bool:
    """Whether a test lets a world of one rank pass, and raises or ends the program in every other."""
    if not guard.is_alone(tree) or not _is_world_size(tree, guard.test):
        return False
    branch = tree.parents.get(guard.test)
    if not isinstance(branch, ast.If):
        return isinstance(branch, ast.Assert)
    away = branch.orelse if guard.holds else branch.body
    return bool(away) and ends(tree, away[-1])


def _is_world_size(tree: Tree, test: ast.expr) -> bool:
    """Whether a test compares how many ranks there are, where no group is made a one."""
    if not isinstance(test, ast.Compare):
        return False
    bindings = tree.lookup(test.left.id, test.left) if isinstance(test.left, ast.Name) else []
    held = [each.value for each in bindings] or [test.left]
    counts = [each.body if isinstance(each, ast.IfExp) else each for each in held]
    return all(each is not None and fact(tree, each) is Fact.WORLD_SIZE for each in counts)
