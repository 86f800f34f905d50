"""Lines that write a parameter in place, and that one rank alone comes to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from ddpdoctor.check import Evidence, Finding, Fix, Place, Tree, last_name, one_rank_calls, one_rank_only, tree_of

from ..._scripts.own_files import own_files

COPIES = re.compile("ema|shadow|teacher|target|momentum|averag|copy|clone|frozen|best", re.IGNORECASE)
"""In the name of what is no parameter that DDP keeps."""

TRAINING = {"step", "backward"}
GIVING = {"broadcast", "all_reduce", "broadcast_object_list", "scatter"}
Write = ast.Call | ast.Assign | ast.AugAssign


class Written(NamedTuple):
    """A line that writes a parameter, what lets one rank alone come to it, and the call of its function there."""

    file: str
    line: int
    code: str
    guard: str
    called: tuple[int, str]

    def finding(self, parameter: str, evidence: list[Evidence]) -> Finding:
        """Return what is wrong, and the line, or the call, without its condition."""
        line, call = self.called[0] or self.line, self.called[1] or self.code
        test = self.guard.removeprefix("under ").strip("`")
        diff = f"-{test}:\n-    {call}\n+{call}" if test.startswith("if ") else f"+{call}"
        return Finding(
            f"the replicas diverge: {parameter} is written on one rank alone, {self.guard}",
            (*evidence, Evidence(f"{call}, {self.guard}", "on all ranks", f"{self.file}:{line}")),
            Fix("write it on all ranks, which hold the same weights", diff=diff),
            Place(file=self.file, line=self.line),
        )


def written_by_one(file: str, parameter: str) -> Written | None:
    """Return where one rank alone writes a parameter of this name, if that is in one place of the user's files."""
    found = [each for own in own_files(file) for each in _written(own, *["", *parameter.split(".")][-2:])]
    return found[0] if len({(each.file, each.guard, each.called) for each in found}) == 1 else None


def _written(file: str, owner: str, leaf: str) -> Iterator[Written]:
    tree = tree_of(file)
    writes: list[Write] = [*tree.of(ast.Call), *tree.of(ast.Assign), *tree.of(ast.AugAssign)]
    for node in writes:
        if not any(_is_parameter(tree, each, owner, leaf) for each in _changed(node)):
            continue
        guard, called = one_rank_only(file, node.lineno), None
        if not guard and (function := getattr(tree.function(node), "name", "")):
            guard = one_rank_calls(file, function)
            called = next((each for each in tree.of(ast.Call) if last_name(each.func) == function), None)
        if guard and _recurs(tree, called or node):
            call = (called.lineno, ast.unparse(called)) if called else (0, "")
            yield Written(file, node.lineno, ast.unparse(node), guard, call)


def _recurs(tree: Tree, node: ast.AST) -> bool:
    """Whether a node stands in a loop that trains, and nothing in that loop gives all ranks what one has."""
    loops = [each for each in tree.above(node) if isinstance(each, (ast.For, ast.While))]
    calls = {last_name(each.func) for loop in loops for each in ast.walk(loop) if isinstance(each, ast.Call)}
    return bool(calls & TRAINING) and not calls & GIVING


def _changed(node: Write) -> Iterator[ast.expr]:
    """Yield what a call or an assignment writes in place."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=receiver)) if name.endswith("_") and name[0] != "_":
            yield from (receiver, *node.args[:1]) if last_name(receiver) == "init" else (receiver,)
        case ast.Assign(targets=targets):
            for each in targets:
                if isinstance(each, ast.Subscript):
                    yield each.value
                elif isinstance(each, ast.Attribute) and each.attr == "data":
                    yield each
        case ast.AugAssign(target=target):
            yield target.value if isinstance(target, ast.Subscript) else target


def _is_parameter(tree: Tree, node: ast.expr, owner: str, leaf: str) -> bool:
    """Whether an expression is a parameter of this name, or each one of a model, and no copy's."""
    while isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr == leaf and not COPIES.search(ast.unparse(node.value)) and _is_owner(tree, node.value, owner)
    return isinstance(node, ast.Name) and any(
        isinstance(loop, ast.For)
        and isinstance(loop.target, ast.Name)
        and loop.target.id == node.id
        and isinstance(loop.iter, ast.Call)
        and last_name(loop.iter.func) == "parameters"
        and not COPIES.search(ast.unparse(loop.iter))
        for loop in tree.above(node)
    )


def _is_owner(tree: Tree, node: ast.expr, owner: str) -> bool:
    """Whether an expression can be the module of a name that holds a parameter."""
    match node:
        case ast.Name(id=name):
            function = tree.function(node)
            given = ast.walk(function.args) if function is not None else ()
            return name == owner or not owner or any(isinstance(each, ast.arg) and each.arg == name for each in given)
        case ast.Attribute(attr=name):
            return name == owner or not owner
        case ast.Subscript(slice=ast.Constant(value=at)):
            return str(at) == owner
    return True
