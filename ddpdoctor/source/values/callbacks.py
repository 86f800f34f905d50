"""Functions that nobody calls in turn: a signal, a thread, the end of an object or of the program calls them."""

from __future__ import annotations

import ast
import enum
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.source.text.lines import statement_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree


class Caller(enum.Enum):
    """What calls such a function, in words."""

    SIGNAL = "a signal"
    OBJECT = "the end of an object"
    PROGRAM = "the end of the program"
    THREAD = "a thread"


REGISTER = {
    "signal.signal": Caller.SIGNAL,
    "weakref.finalize": Caller.OBJECT,
    "atexit.register": Caller.PROGRAM,
    "threading.Thread": Caller.THREAD,
    "threading.Timer": Caller.THREAD,
}
METHODS = {"add_signal_handler": Caller.SIGNAL, "submit": Caller.THREAD, "run_in_executor": Caller.THREAD}
"""Methods of loops and executors, whose type is not known."""
FINALIZER = "__del__"


class Callback(NamedTuple):
    """Such a function: its name, what calls it, the line that says so; its first and last line."""

    name: str
    caller: Caller
    line: int
    first: int
    last: int

    def holds(self, line: int) -> bool:
        """Whether a line stands in it."""
        return self.first <= line <= self.last


def callback_around(file: str, line: int) -> Callback | None:
    """Return the function of that kind around a line, the innermost first; None where there is none.

    One that the file calls by its name as well is none: where it was called in turn, it is no callback.
    """
    tree = tree_of(file)
    statement = statement_at(tree, line)
    return callback_of(tree, statement) if statement is not None else None


def callback_of(tree: Tree, node: ast.AST) -> Callback | None:
    """Return the same of a node of a tree."""
    for function in tree.above(node):
        if isinstance(function, FUNCTIONS) and not isinstance(function, ast.Lambda):
            found = next(_registered(tree, function), None)
            if found is not None and not _is_called(tree, function):
                caller, where = found
                return Callback(function.name, caller, where, function.lineno, function.end_lineno or 0)
    return None


def _registered(tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[Caller, int]]:
    if function.name == FINALIZER:
        yield Caller.OBJECT, function.lineno
    for decorator in function.decorator_list:
        if caller := REGISTER.get(resolve(tree, decorator) or ""):
            yield caller, decorator.lineno
    for call in tree.of(ast.Call):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        caller = REGISTER.get(resolve(tree, call.func) or "") or METHODS.get(method)
        given = [*call.args, *(each.value for each in call.keywords if each.arg in {"target", "function"})]
        if caller is not None and any(_is_it(tree, each, function) for each in given):
            yield caller, call.lineno


def _is_it(tree: Tree, node: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether an expression is that function: its name, or a method of ``self``."""
    match node:
        case ast.Name(id=name):
            return name == function.name and any(each.node is function for each in tree.lookup(name, node))
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name == function.name and tree.class_of(node) is tree.class_of(function)
    return False


def _is_called(tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(_is_it(tree, call.func, function) for call in tree.of(ast.Call))
