"""What an attribute holds that several methods of a class store, by the method that calls them one after the other."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.values.sites import call_sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree


class _Stored(NamedTuple):
    """A binding, the line of the leading method in which it comes about, and whether it does in any case."""

    line: int
    inner: int
    is_certain: bool
    binding: Binding


def settled(tree: Tree, bindings: list[Binding], node: ast.expr) -> list[Binding]:
    """Return what can be in force at a node, the last one first; nothing where the order is not seen.

    It is seen where one method, ``__init__`` say, stores all of it, or calls each method that does, once; and where
    that comes before the method in which the node stands.
    """
    reader = tree.function(node)
    owner = tree.class_of(reader) if reader is not None else None
    methods = [each for each in owner.body if isinstance(each, ast.FunctionDef)] if owner and bindings else []
    for leader in methods:
        stored = [_stored(tree, each, leader) for each in bindings]
        known = sorted((each for each in stored if each is not None), key=lambda each: each[:2])
        if len(known) == len(bindings) and _comes_after(tree, reader, leader, known[-1].line):
            return list(_until_certain(known))
    return []


def _stored(tree: Tree, binding: Binding, leader: ast.FunctionDef) -> _Stored | None:
    home = tree.function(binding.node)
    if not isinstance(home, ast.FunctionDef):
        return None
    is_certain = _is_first_level(tree, binding.node)
    if home is leader:
        return _Stored(binding.line, 0, is_certain, binding)
    sites = call_sites(tree, home)
    if sites is None or len(sites) != 1 or tree.function(sites[0]) is not leader:
        return None
    return _Stored(sites[0].lineno, binding.line, is_certain and _is_first_level(tree, sites[0]), binding)


def _is_first_level(tree: Tree, node: ast.AST) -> bool:
    """Whether a statement stands in the function's own block: every call of it comes by, unless it ends before."""
    parent = tree.parents.get(tree.statement(node) or node)
    while isinstance(parent, (ast.With, ast.Try)):
        parent = tree.parents.get(parent)
    return isinstance(parent, FUNCTIONS)


def _comes_after(tree: Tree, reader: ast.AST | None, leader: ast.FunctionDef, line: int) -> bool:
    """Whether a method runs only when the leading one is through with what it stores, at this line the last time."""
    if not isinstance(reader, ast.FunctionDef) or reader is leader:
        return False
    within = [site for site, method in _calls(tree, leader) if reader in _reached(tree, method)]
    if within:
        return all(each.lineno > line for each in within)
    return leader.name == "__init__"


def _reached(tree: Tree, method: ast.FunctionDef) -> set[ast.FunctionDef]:
    """Return a method, and those of its class that it calls, directly or not."""
    found, waiting = {method}, [method]
    while waiting:
        new = {each for _, each in _calls(tree, waiting.pop())} - found
        found |= new
        waiting += new
    return found


def _calls(tree: Tree, method: ast.FunctionDef) -> Iterator[tuple[ast.Call, ast.FunctionDef]]:
    """Yield the calls of methods of the same object, each with the method."""
    owner = tree.class_of(method)
    for node in ast.walk(method):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                for each in tree.bindings.get(owner, {}).get(name, []) if owner is not None else ():
                    if isinstance(each.node, ast.FunctionDef):
                        yield node, each.node


def _until_certain(stored: list[_Stored]) -> Iterator[Binding]:
    for each in reversed(stored):
        yield each.binding
        if each.is_certain:
            return
