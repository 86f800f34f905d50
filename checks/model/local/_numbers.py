"""What the source says of a plain number that a function, or an object, keeps from step to step."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ddpdoctor.check import last_name, tree_of

from ._held import BUILDS
from ._statements import REDUCES

NAME = re.compile(r"[^\W\d]\w*")
CHANCE = re.compile(r"rand|choice|sample|beta$|normal|gauss|uniform|bernoulli|shuffle|perm")
CLOCK = re.compile(r"^(time|perf_counter|monotonic|time_ns|now|process_time|elapsed_time)$")
GROWS = {"append", "extend", "appendleft", "update", "add"}


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a number is computed: ``carried`` if from what it, or what grows beside it, was before."""

    line: int
    carried: bool
    reduces: bool


def name_of(path: str) -> str:
    """Return the name by which a line means what is held at a path such as ``trainer.state['p']``."""
    return str(NAME.findall(path)[-1])


def names_of(path: str) -> list[str]:
    """Return the names by which a line can mean it: a key, and what it is a key of."""
    return [str(each) for each in NAME.findall(path)[-2 if path.endswith("]") else -1 :]]


def names_at(file: str, line: int) -> set[str]:
    """Return the names of the innermost statement at a line, keys of dicts included."""
    found = [
        node
        for node in tree_of(file).nodes
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not found:
        return set()
    return _names(max(found, key=lambda node: (node.lineno, -(node.end_lineno or 0))))


def kept(file: str, name: str) -> Kept | None:
    """Return how a file computes a number of this name; None where it is not seen, or is drawn, or read off a clock.

    None also where what is put in its place has nothing to do with what it was, and is no mean of samples.
    """
    tree = tree_of(file).module
    grown, found = _grown(tree), []
    for scope in (
        each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module))
    ):
        for node in _own_statements(scope):
            if not _assigns(node, name) or isinstance(value := _value(node), ast.Constant):
                continue
            called = {last_name(each.func) for each in ast.walk(value) if isinstance(each, ast.Call)}
            if any(CHANCE.search(each) or CLOCK.search(each) for each in called):
                return None
            carried = isinstance(node, ast.AugAssign) or bool(_names(value) & {name, *grown})
            reduces = any(REDUCES.match(each) for each in called)
            if carried or reduces:
                found.append(Kept(node.lineno, carried, reduces))
            elif not (isinstance(scope, ast.Module) or getattr(scope, "name", "") in BUILDS):
                return None
    return next((each for each in found if each.carried), found[0] if found else None)


def _own_statements(scope: ast.AST) -> list[ast.stmt]:
    """List the statements of a function or a module, without those of functions within it."""
    found, waiting = [], list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.stmt):
            found.append(node)
        waiting += ast.iter_child_nodes(node)
    return found


def _assigns(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Assign):
        targets = [part for each in node.targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    else:
        return False
    return any(_target(each) == name for each in targets)


def _target(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        key = node.slice
        return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else last_name(node.value)
    return last_name(node)


def _value(node: ast.stmt) -> ast.expr:
    value = getattr(node, "value", None)
    return value if value is not None else ast.Constant(None)


def _grown(tree: ast.AST) -> set[str]:
    """Return the names of lists and the like that are made longer."""
    return {
        last_name(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWS
    } - {"", "self"}


def _names(node: ast.AST) -> set[str]:
    """Return the names that a statement says, keys of dicts included, without those of methods that it calls."""
    called = {id(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
    names = {
        last_name(each)
        for each in ast.walk(node)
        if isinstance(each, (ast.Attribute, ast.Name)) and id(each) not in called
    }
    slices = [each.slice for each in ast.walk(node) if isinstance(each, ast.Subscript)]
    return names | {each.value for each in slices if isinstance(each, ast.Constant) and isinstance(each.value, str)}
