"""Whether all ranks come to a line."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.names import resolve
from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.reach.rank_facts import is_rankish
from ddpdoctor.source.reach.sites import SPAWN, call_sites
from ddpdoctor.source.tree import FUNCTIONS

if TYPE_CHECKING:
    from ddpdoctor.source.tree import Tree


def all_ranks_reach(tree: Tree, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether every rank is shown to come to a node: no guard on the way to it can depend on the rank.

    False wherever that cannot be seen: in methods that others call, in functions that nobody here calls, in handlers
    of exceptions.
    """
    if any(guard.is_rankish(tree) for guard in guards(tree, node)):
        return False
    for parent in tree.above(node):
        if isinstance(parent, (ast.ExceptHandler, ast.Match)):
            return False
        items = parent.items if isinstance(parent, (ast.With, ast.AsyncWith)) else ()
        if any(is_rankish(tree, item.context_expr) for item in items):
            return False
        if isinstance(parent, FUNCTIONS):
            break
    function = tree.function(node)
    if function is None:
        return tree.class_of(node) is None
    if function in seen:
        return False
    sites = call_sites(tree, function)
    return any(all_ranks_reach(tree, site, seen | {function}) for site in sites or ())


def runs_in_parent(tree: Tree, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether a node can run in a process that is no rank: one that starts the ranks, and where it is not in them."""
    calls = tree.of(ast.Call)
    if any((resolve(tree, each.func) or "").endswith("Process") for each in calls):
        return True  # who is started, and with what, is not followed
    if not any(resolve(tree, each.func) in SPAWN for each in calls):
        return False
    function = tree.function(node)
    if function is None or function in seen:
        return function is None
    for site in call_sites(tree, function) or ():
        if resolve(tree, site.func) not in SPAWN and runs_in_parent(tree, site, seen | {function}):
            return True
    return False
