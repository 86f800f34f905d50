"""What an argument parser returned: by which name, in which file, and who told the parser its options."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import Binding
from ddpdoctor.source.values.bound import answers
from ddpdoctor.source.values.handed import handed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

PARSERS = {"parse_args", "parse_known_args"}
FARTHEST = 4  # names, functions and files between an option and the parser that knows it


def is_parsed(tree: Tree, base: ast.Name, depth: int = FARTHEST) -> bool:
    """Whether a name holds what an argument parser returned, and nothing else."""
    bindings = tree.lookup(base.id, base)
    return bool(bindings) and all(_is_parsed(tree, each, depth) for each in bindings)


def _is_parsed(tree: Tree, binding: Binding, depth: int) -> bool:
    if isinstance(binding.node, ast.arg):
        given = handed(tree, binding) or []
        return bool(given) and all(
            isinstance(each, ast.Name) and depth > 0 and is_parsed(there, each, depth - 1) for there, each in given
        )
    match binding.value:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in PARSERS
        case ast.Call(func=ast.Name() as function, args=[]):
            found = answers(tree, function) if depth else []
            return bool(found) and all(_is_parsed(there, Binding(each, each), depth - 1) for there, each in found)
        case ast.Name() as name:
            return depth > 0 and is_parsed(tree, name, depth - 1)
    return False


def knows_option(tree: Tree, base: ast.Name, name: str) -> bool:
    """Whether a name holds what a parser returned that knows an option, in this file or the one that makes it."""
    return is_parsed(tree, base) and any(name in options(each) for each in (tree, *_makers(tree, base, FARTHEST)))


def _makers(tree: Tree, base: ast.Name, depth: int) -> Iterator[Tree]:
    """Yield the files in which the parser can be made whose answer a name holds."""
    for binding in tree.lookup(base.id, base) if depth else ():
        if isinstance(binding.node, ast.arg):
            passed: list[tuple[Tree, ast.expr]] = handed(tree, binding) or []
        elif isinstance(binding.value, ast.Call):
            passed = _asked(tree, binding.value)
        else:
            passed = [(tree, binding.value)] if binding.value is not None else []
        for there, each in passed:
            yield there
            if isinstance(each, ast.Name):
                yield from _makers(there, each, depth - 1)
            elif isinstance(each, ast.Call):
                yield from (maker for maker, _ in _asked(there, each))


def _asked(tree: Tree, call: ast.Call) -> list[tuple[Tree, ast.expr]]:
    """Return what a helper returns, or what makes the parser whose method is called: ``make_parser().parse_args()``."""
    match call.func:
        case ast.Attribute(value=ast.Call(func=function)):
            return answers(tree, function)
        case ast.Attribute(value=ast.Name() as parser):
            return [(tree, parser)]
        case ast.Name() as function:
            return answers(tree, function)
    return []


def options(tree: Tree) -> dict[str, ast.Call]:
    """Return the calls of ``add_argument`` of a file, by the attribute that they fill."""
    found: dict[str, ast.Call] = {}
    for node in tree.of(ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if names:
                found[max(names, key=len).lstrip("-").replace("-", "_")] = node
    return found
