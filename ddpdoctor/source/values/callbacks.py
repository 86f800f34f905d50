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
DEEPEST = 4  # calls


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

    One that the file calls by its name as well is none: where it was called in turn, it is no callback. A helper is
    in the callback that holds its one call.
    """
    tree = tree_of(file)
    node: ast.AST | None = statement_at(tree, line)
    for _ in range(DEEPEST):
        if node is None:
            break
        if (found := callback_of(tree, node)) is not None:
            return found
        node = _only_call(tree, node)
    return None


def _only_call(tree: Tree, node: ast.AST) -> ast.Call | None:
    """Return the one call of the function around a node, by its name in this file."""
    function = next((each for each in tree.above(node) if isinstance(each, FUNCTIONS)), None)
    name = getattr(function, "name", "")
    calls = [each for each in tree.of(ast.Call) if name and ast.unparse(each.func).rpartition(".")[2] == name]
    return calls[0] if len(calls) == 1 else None


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
    if function.name == "run" and (made := _thread_made(tree, function)):
        yield Caller.THREAD, made
    for decorator in function.decorator_list:
        if caller := REGISTER.get(resolve(tree, decorator) or ""):
            yield caller, decorator.lineno
    for call in tree.of(ast.Call):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        caller = REGISTER.get(resolve(tree, call.func) or "") or METHODS.get(method)
        given = [*call.args, *(each.value for each in call.keywords if each.arg in {"target", "function"})]
        if caller is not None and any(_is_it(tree, each, function) for each in given):
            yield caller, call.lineno


def _thread_made(tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the line that makes a thread of the class whose ``run`` a function is; 0 where it is none of a thread."""
    owner = tree.class_of(function)
    if owner is None or not any(REGISTER.get(resolve(tree, base) or "") is Caller.THREAD for base in owner.bases):
        return 0
    made = (call.lineno for call in tree.of(ast.Call) if ast.unparse(call.func).rpartition(".")[2] == owner.name)
    return next(made, owner.lineno)


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
