"""A file that is read for each item of a data set, though it is the same one each time."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import Tree, last_name, resolve, statement_at, tree_of

from .._files import READERS, READS_PATH, opens_to_read

ITEM = {"__getitem__", "__getitems__"}
KEPT_OPEN = {"h5py.File", "zipfile.ZipFile", "tarfile.open", "sqlite3.connect"}
PUT_TOGETHER = {"join", "joinpath", "str", "Path", "fspath", "format"}
"""Calls whose result is the same where what they are given is."""
AT_TIMES = ast.If | ast.IfExp | ast.BoolOp | ast.Try | ast.While | ast.Match | ast.Lambda
DEEP = 3  # names, or calls, that are followed one after another
Method = ast.FunctionDef


@dataclass(frozen=True, slots=True)
class SameFile:
    """A call that opens or reads a file for each item: its line, the path as it is said there, what to do about it."""

    line: int
    path: str
    keep: str
    diff: str


@functools.cache
def same_file(file: str, number: int) -> SameFile | None:
    """Return what reads the same file for each item, where a line is part of that; None where nothing is known of it.

    What is read under a condition is not read for each item, and what ``__iter__`` reads it may read once.
    """
    tree = tree_of(file)
    statement = statement_at(tree, number)
    method = tree.function(statement) if statement is not None else None
    if statement is None or not isinstance(method, Method) or not _is_for_each_item(tree, method):
        return None
    for call, path in reads(tree, statement):
        above = [*_within(tree, call, method)]
        rest = [*call.args, *(each.value for each in call.keywords)]
        if path is None or any(isinstance(each, AT_TIMES) for each in above) or ".seek(" in ast.unparse(method):
            return None
        if all(_is_constant(tree, each) for each in (path, *rest)):
            opened = (resolve(tree, call.func) or "") in KEPT_OPEN
            if opened and not call.lineno <= number <= (call.end_lineno or 0):
                return None  # it may be the item itself that is read there
            keep = "open it once, at the first item of each process" if opened else "read it once and keep it"
            return SameFile(call.lineno, ast.unparse(path), keep, "" if opened else _diff(tree, call, method))
    return None


def _within(tree: Tree, node: ast.AST, method: Method) -> Iterator[ast.AST]:
    for each in tree.above(node):
        if each is method:
            return
        yield each


def reads(tree: Tree, statement: ast.stmt) -> Iterator[tuple[ast.Call, ast.expr | None]]:
    """Yield the calls that open or read a file, of a statement or of what it goes on with, and what tells the path."""
    parts = _heads(statement)
    names = {each.id for part in parts for each in ast.walk(part) if isinstance(each, ast.Name)}
    for each in tree.above(statement):
        if isinstance(each, ast.For):  # over the lines of a file
            parts += [each.iter]
            names |= {one.id for one in ast.walk(each.iter) if isinstance(one, ast.Name)}
        elif isinstance(each, ast.With):
            given = {one.optional_vars.id: one for one in each.items if isinstance(one.optional_vars, ast.Name)}
            parts += [one.context_expr for name, one in given.items() if name in names]
        elif isinstance(each, Method):
            break
    for call in (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)):
        named = resolve(tree, call.func) or ""
        if isinstance(call.func, ast.Attribute) and call.func.attr in READS_PATH:
            yield call, call.func.value
        elif opens_to_read(tree, call) or (named in READERS | KEPT_OPEN and not _of_opened(tree, call)):
            yield call, call.args[0] if call.args else None


def _heads(statement: ast.stmt) -> list[ast.expr | ast.stmt]:
    match statement:
        case ast.With(items=items):
            return [each.context_expr for each in items]
        case ast.For(iter=through):
            return [through]
        case ast.If() | ast.While() | ast.Try() | ast.FunctionDef() | ast.ClassDef():
            return []
    return [statement]


def _of_opened(tree: Tree, call: ast.Call) -> bool:
    """Whether a call reads what another one has opened: ``json.load(f)``."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Call):
        return opens_to_read(tree, first)
    return isinstance(first, ast.Name) and any(
        isinstance(each.node, ast.withitem) for each in tree.lookup(first.id, first)
    )


def _is_for_each_item(tree: Tree, method: Method, depth: int = DEEP) -> bool:
    """Whether a function gives an item of a data set, or is called by such functions alone."""
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(method)):
        return False
    if method.decorator_list and method.name not in ITEM:
        return False  # functools.cache, a property
    if method.name in ITEM:
        return tree.class_of(method) is not None
    callers = [tree.function(call) for call in calls_of(tree, method)]
    return bool(callers and depth) and all(
        isinstance(each, Method) and each is not method and _is_for_each_item(tree, each, depth - 1) for each in callers
    )


def calls_of(tree: Tree, method: Method) -> list[ast.Call]:
    """Return the calls of a function in its file, by its name."""
    return [call for call in tree.of(ast.Call) if last_name(call.func) == method.name]


def _is_constant(tree: Tree, node: ast.AST, depth: int = DEEP) -> bool:
    """Whether an expression has one value for all items, as far as its names say."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            return _is_set_once(tree, node, attr)
        case ast.Name(id=name):
            return depth > 0 and _name_is_constant(tree, node, name, depth - 1)
    parts = _parts(tree, node)
    return parts is not None and all(_is_constant(tree, each, depth) for each in parts)


def _parts(tree: Tree, node: ast.AST) -> list[ast.expr] | None:
    """Return what decides on the value of an expression; None where that is more than what stands in it."""
    match node:
        case ast.Constant():
            return []
        case ast.Call(func=func, args=args, keywords=keywords) if last_name(func) in PUT_TOGETHER:
            owner = [func.value] if isinstance(func, ast.Attribute) and not resolve(tree, func) else []
            return [*owner, *args, *(each.value for each in keywords)]
        case ast.Attribute(value=value) | ast.FormattedValue(value=value):
            return [value]
        case ast.JoinedStr(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            return parts
        case ast.BinOp(left=left, right=right) | ast.Subscript(value=left, slice=right):
            return [left, right]
    return None


def _is_set_once(tree: Tree, node: ast.AST, attr: str) -> bool:
    """Whether an attribute of ``self`` is bound in ``__init__`` alone."""
    bindings = tree.attributes.get((tree.class_of(node), f"self.{attr}"), [])
    functions = [tree.function(each.node) for each in bindings]
    return bool(functions) and all(isinstance(each, Method) and each.name == "__init__" for each in functions)


def _name_is_constant(tree: Tree, node: ast.Name, name: str, depth: int) -> bool:
    bindings = tree.lookup(name, node)
    if len(bindings) != 1:
        return False
    (binding,) = bindings
    if binding.path or binding.value is not None:
        return bool(binding.path) or _is_constant(tree, binding.value or node, depth)
    return isinstance(binding.node, ast.arg) and _is_given_the_same(tree, binding.node, depth)


def _is_given_the_same(tree: Tree, argument: ast.arg, depth: int) -> bool:
    """Whether all calls of a function give a constant for a parameter of it."""
    method = tree.function(argument)
    if not isinstance(method, Method) or method.name in ITEM or method.args.vararg or method.args.kwarg:
        return False
    names = [each.arg for each in [*method.args.posonlyargs, *method.args.args]]
    at = names.index(argument.arg) - (names[:1] == ["self"]) if argument.arg in names else len(names)
    given = [
        [*call.args[at : at + 1], *(each.value for each in call.keywords if each.arg == argument.arg)]
        for call in calls_of(tree, method)
    ]
    return bool(given) and all(len(each) == 1 and _is_constant(tree, each[0], depth) for each in given)


def _diff(tree: Tree, call: ast.Call, method: Method) -> str:
    """Return how a line that reads a file moves to ``__init__``; empty where more than the line would have to."""
    if method.name not in ITEM:
        return f"+@functools.cache\n def {method.name}({ast.unparse(method.args)}):"
    statement = tree.statement(call)
    match statement:
        case ast.With(body=[ast.Assign(targets=[ast.Name(id=name)])]) | ast.Assign(targets=[ast.Name(id=name)]):
            text = ast.unparse(statement).splitlines()
        case _:
            return ""
    if any(_is_of_the_method(tree, each) for each in ast.walk(statement)):
        return ""  # __init__ has not that name
    kept = [*text[:-1], text[-1].replace(f"{name} =", f"self.{name} =", 1)]
    return "\n".join(
        [" def __init__(...):", *(f"+    {each}" for each in kept), f" def {method.name}(...):",
         *(f"-    {each}" for each in text), f"+    {name} = self.{name}"]
    )  # fmt: skip


def _is_of_the_method(tree: Tree, node: ast.AST) -> bool:
    """Whether a name is read that a parameter or another statement of the function has bound."""
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id == "self":
        return False
    made = [each for each in tree.lookup(node.id, node) if not isinstance(each.node, ast.withitem | ast.comprehension)]
    return any(tree.function(each.node) is not None for each in made)
