"""What a call passes for a parameter."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import default_of
from ddpdoctor.source.text.names import resolve

if TYPE_CHECKING:
    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Function, Tree
from ddpdoctor.source.values.sites import STARTS, call_sites


def argument(call: ast.Call, function: Function, name: str, *, spawned: bool) -> ast.expr | None:
    """Return what a call passes for a parameter, or its default; None where that cannot be seen."""
    if spawned:
        return _packed(call, function, name)
    for word in call.keywords:
        if word.arg == name:
            return word.value  # which ``**more`` beside it cannot hold
    if any(isinstance(each, ast.Starred) for each in call.args) or any(word.arg is None for word in call.keywords):
        return None
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if names and names[0] in {"self", "cls"}:
        names = names[1:]
    if name in names and names.index(name) < len(call.args):
        return call.args[names.index(name)]
    return default_of(function, name)


def placed_argument(
    own: Tree, site: tuple[Tree, ast.Call], function: Function, name: str, *, spawned: bool
) -> tuple[Tree, ast.expr | None]:
    """Return the same for a call of another file, with the tree that it stands in: a default stands in the own one."""
    there, call = site
    given = argument(call, function, name, spawned=spawned)
    return own if given in own.parents else there, given


def _packed(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """Return what the processes that a call starts are passed for a parameter; spawn puts their number before it."""
    words = {word.arg: word.value for word in call.keywords}
    pack = words.get("args", call.args[1] if len(call.args) > 1 and "target" not in words else None)
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] == ["self"] else names
    if not isinstance(pack, (ast.Tuple, ast.List)) or any(isinstance(each, ast.Starred) for each in pack.elts):
        return None
    place = (names.index(name) if name in names else 0) - (0 if "target" in words else 1)
    return pack.elts[place] if name in names and 0 <= place < len(pack.elts) else None


def passed(tree: Tree, parameter: Binding) -> list[ast.expr] | None:
    """Return what all calls pass for a parameter; None where one of them, or what it passes, cannot be seen."""
    function = tree.function(parameter.node)
    sites = call_sites(tree, function) if function is not None else None
    if not sites or function is None or not isinstance(parameter.node, ast.arg):
        return None
    found = []
    for site in sites:
        spawned = resolve(tree, site.func) in STARTS
        given = argument(site, function, parameter.node.arg, spawned=spawned)
        if given is None:
            return None
        found.append(given)
    return found
