"""Who calls a function of the file, and with what."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.names import resolve

if TYPE_CHECKING:
    from ddpdoctor.source.tree import Binding, Function, Tree

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
    if function not in tree.sites:
        tree.sites[function] = _call_sites(tree, function)
    return tree.sites[function]


def _call_sites(tree: Tree, function: Function) -> list[ast.Call] | None:
    if isinstance(function, ast.Lambda):
        return None
    if any(resolve(tree, bare(each)) not in HARMLESS for each in function.decorator_list):
        return None
    if isinstance(tree.parents.get(function), ast.ClassDef):
        return _of_method(tree, function)
    sites = []
    for node in tree.read.get(function.name, ()):
        if not any(binding.node is function for binding in tree.lookup(node.id, node)):
            continue
        call = tree.parents[node]
        if not isinstance(call, ast.Call) or not (call.func is node or resolve(tree, call.func) in SPAWN):
            return None
        sites.append(call)
    return sites


def bare(decorator: ast.expr) -> ast.expr:
    """Return what a decorator names, without what it is given."""
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _of_method(tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Call] | None:
    """Return the calls by ``self``; None where another object's attribute has the same name, or it is special."""
    if function.name.startswith("__"):
        return None
    sites = []
    for node in tree.members.get(function.name, ()):
        call = tree.parents[node]
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not is_own or tree.class_of(node) is not tree.class_of(function) or not isinstance(call, ast.Call):
            return None
        if call.func is not node:
            return None
        sites.append(call)
    return sites


def argument(call: ast.Call, function: Function, name: str, *, spawned: bool) -> ast.expr | None:
    """Return what a call passes for a parameter, or its default; None where that cannot be seen."""
    if (
        spawned
        or any(isinstance(each, ast.Starred) for each in call.args)
        or any(word.arg is None for word in call.keywords)
    ):
        return None
    for word in call.keywords:
        if word.arg == name:
            return word.value
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if names and names[0] in {"self", "cls"}:
        names = names[1:]
    if name in names and names.index(name) < len(call.args):
        return call.args[names.index(name)]
    return _default(function, name)


def _default(function: Function, name: str) -> ast.expr | None:
    places = [*function.args.posonlyargs, *function.args.args]
    given = dict(zip([each.arg for each in reversed(places)], reversed(function.args.defaults), strict=False))
    words = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return given.get(name) or next((value for each, value in words if each.arg == name), None)


def passed(tree: Tree, parameter: Binding) -> list[ast.expr] | None:
    """Return what all calls pass for a parameter; None where one of them, or what it passes, cannot be seen."""
    function = tree.function(parameter.node)
    sites = call_sites(tree, function) if function is not None else None
    if not sites or function is None or not isinstance(parameter.node, ast.arg):
        return None
    found = []
    for site in sites:
        given = argument(site, function, parameter.node.arg, spawned=resolve(tree, site.func) in SPAWN)
        if given is None:
            return None
        found.append(given)
    return found
