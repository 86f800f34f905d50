"""A file that is read again and again in the loop of the training, though it is the same one each time."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import Tree, last_name, resolve, statement_at, tree_of

from ..waiting._same_file import PUT_TOGETHER, calls_of, reads

CHANGES = {"torch.load", "safetensors.torch.load_file"}
"""What reads a checkpoint, which the training itself may have written."""
GIVEN = {"parse_args", "getenv", "get"}
"""Calls by which a script is told a path, once."""
WRITES = {"save", "dump", "savez", "savetxt", "to_csv", "to_parquet", "write_text", "write_bytes", "save_file"}
DEEP = 4  # names, or calls, that are followed one after another


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """A call that reads a file: its line, and the path as it is said there."""

    line: int
    path: str


@functools.cache
def read_again(file: str, number: int) -> ReadAgain | None:
    """Return what reads a file of one path alone, where a line is part of that; None where the path is another."""
    tree = tree_of(file)
    statement = statement_at(tree, number)
    if statement is None:
        return None
    for call, path in reads(tree, statement):
        if path is None or (resolve(tree, call.func) or "") in CHANGES:
            return None
        if _is_the_same(tree, path) and not _is_written(tree, path):
            return ReadAgain(call.lineno, _said(tree, path))
    return None


def _said(tree: Tree, path: ast.expr) -> str:
    """Return a path as its function is given it, where that is one of its parameters."""
    bindings = tree.lookup(path.id, path) if isinstance(path, ast.Name) else []
    given = [one for each in bindings if isinstance(each.node, ast.arg) for one in _given_for(tree, each.node)]
    return ast.unparse(given[0] if given and given[0] is not None else path)


def _is_written(tree: Tree, path: ast.expr) -> bool:
    """Whether a call that writes is given that path, by the same words, or a file of it is opened to write."""
    text = ast.unparse(path)
    for call in tree.of(ast.Call):
        given = [ast.unparse(each) for each in (*call.args, *(one.value for one in call.keywords))]
        owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        name = last_name(call.func)
        if text not in {*given, owner}:
            continue
        modes = [each.strip("'\"") for each in given[1:2]] if name == "open" else []
        if name in WRITES or any(set(mode) & set("wax+") for mode in modes):
            return True
    return False


def _is_the_same(tree: Tree, node: ast.expr, depth: int = DEEP) -> bool:
    """Whether an expression has one value however often it is come to, as far as its names say."""
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return depth > 0 and _name_is_the_same(tree, node, name, depth - 1)
        case ast.Attribute(value=ast.Name(id="self")):
            return False  # of each object another one
        case ast.Call(func=func, args=args, keywords=keywords) if last_name(func) in PUT_TOGETHER:
            owner = [func.value] if isinstance(func, ast.Attribute) and not resolve(tree, func) else []
            return all(_is_the_same(tree, each, depth) for each in (*owner, *args, *(one.value for one in keywords)))
    parts = _parts(node)
    return bool(parts) and all(_is_the_same(tree, each, depth) for each in parts)


def _parts(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Attribute(value=value) | ast.FormattedValue(value=value):
            return [value]
        case ast.JoinedStr(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            return parts
        case ast.BinOp(left=left, right=right) | ast.Subscript(value=left, slice=right):
            return [left, right]
    return []


def _name_is_the_same(tree: Tree, node: ast.Name, name: str, depth: int) -> bool:
    bindings = tree.lookup(name, node)
    if len(bindings) != 1:
        return False
    (binding,) = bindings
    if isinstance(binding.node, ast.arg):
        given = [*_given_for(tree, binding.node)]
        return bool(given) and all(each is not None and _is_the_same(tree, each, depth) for each in given)
    if any(isinstance(each, ast.For | ast.While) for each in (binding.node, *tree.above(binding.node))):
        return False
    if binding.value is None:
        return False
    is_told = isinstance(binding.value, ast.Call) and last_name(binding.value.func) in GIVEN
    return is_told or _is_the_same(tree, binding.value, depth)


def _given_for(tree: Tree, argument: ast.arg) -> Iterator[ast.expr | None]:
    """Yield what each call of a function gives for a parameter of it; None where that is not seen."""
    function = tree.function(argument)
    if not isinstance(function, ast.FunctionDef) or function.args.vararg or function.args.kwarg:
        yield None
        return
    names = [each.arg for each in [*function.args.posonlyargs, *function.args.args]]
    at = names.index(argument.arg) - (names[:1] == ["self"]) if argument.arg in names else len(names)
    for call in calls_of(tree, function):
        said = [*call.args[at : at + 1], *(each.value for each in call.keywords if each.arg == argument.arg)]
        yield said[0] if len(said) == 1 else None
