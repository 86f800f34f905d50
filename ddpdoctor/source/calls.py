"""Who calls a function, and whether all ranks come to a line."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.guards import guards
from ddpdoctor.source.names import resolve
from ddpdoctor.source.rank_facts import is_rankish
from ddpdoctor.source.tree import FUNCTIONS

if TYPE_CHECKING:
    from ddpdoctor.source.tree import Function, Tree

SPAWN = {"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"}
HARMLESS = {
    "torch.distributed.elastic.multiprocessing.errors.record",
    "torch.no_grad",
    "torch.inference_mode",
    "torch.enable_grad",
    "hydra.main",
}


def call_sites(tree: Tree, function: Function) -> list[ast.Call] | None:
    """Return the calls of a function; None where it is also used in ways that cannot be followed.

    A function that is handed to ``torch.multiprocessing.spawn`` is called there.
    """
    if isinstance(function, ast.Lambda):
        return None
    if any(resolve(tree, _bare(each)) not in HARMLESS for each in function.decorator_list):
        return None
    if isinstance(tree.parents.get(function), ast.ClassDef):
        return _of_method(tree, function)
    sites = []
    for node in tree.nodes:
        if isinstance(node, ast.Name) and node.id == function.name and isinstance(node.ctx, ast.Load):
            if not any(binding.node is function for binding in tree.lookup(node.id, node)):
                continue
            call = tree.parents[node]
            if not isinstance(call, ast.Call) or not (call.func is node or resolve(tree, call.func) in SPAWN):
                return None
            sites.append(call)
    return sites


def _bare(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _of_method(tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Call] | None:
    """Return the calls by ``self``; None where another object's attribute has the same name, or it is special."""
    if function.name.startswith("__"):
        return None
    sites = []
    for node in tree.nodes:
        if isinstance(node, ast.Attribute) and node.attr == function.name:
            call = tree.parents[node]
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_own or tree.class_of(node) is not tree.class_of(function) or not isinstance(call, ast.Call):
                return None
            if call.func is not node:
                return None
            sites.append(call)
    return sites


def argument(call: ast.Call, function: Function, name: str, *, spawned: bool) -> ast.expr | None:
    """Return what a call passes for a parameter; None where that cannot be seen."""
    if any(isinstance(each, ast.Starred) for each in call.args) or any(word.arg is None for word in call.keywords):
        return None
    given = next((word.value for word in call.keywords if word.arg == name), None)
    if spawned:
        return None
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if names and names[0] in {"self", "cls"}:
        names = names[1:]
    place = names.index(name) if name in names else len(call.args)
    return given or (call.args[place] if place < len(call.args) else None)


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
        if isinstance(parent, (ast.With, ast.AsyncWith)):
            if any(is_rankish(tree, item.context_expr) for item in parent.items):
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
    if not any(isinstance(each, ast.Call) and resolve(tree, each.func) in SPAWN for each in tree.nodes):
        return False
    function = tree.function(node)
    if function is None or function in seen:
        return function is None
    for site in call_sites(tree, function) or ():
        if resolve(tree, site.func) not in SPAWN and runs_in_parent(tree, site, seen | {function}):
            return True
    return False
