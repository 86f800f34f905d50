"""The path of a file that a loop asks for: whether each process has another one, and which files the script makes."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.source.reach.data import AGREED, is_exchanged
from ddpdoctor.source.reach.ranks import are_alternatives
from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.lines import tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.training.polls import question
from ddpdoctor.source.values.bound import origins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

DEPTH = 6
OF_METHOD, OF_FUNCTION = frozenset({"exists", "is_file", "is_dir"}), frozenset({"exists", "isfile", "isdir", "lexists"})
OWN = {
    "tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.mktemp", "tempfile.TemporaryDirectory",
    "tempfile.NamedTemporaryFile", "uuid.uuid1", "uuid.uuid4", "os.getpid", "secrets.token_hex", "time.time_ns",
    "time.perf_counter_ns",
}  # fmt: skip
"""What returns another path, name or number in each process."""
MAKES = frozenset("touch write_text write_bytes mkdir".split())
"""Methods of a path that make what it names."""
GIVEN = {
    "open": 0, "makedirs": 0, "mkdir": 0, "savez": 0, "save_file": 1, "symlink": 1, "rename": 1, "move": 1,
    "replace": 1,
}  # fmt: skip
"""Functions that make a file, and which argument is its path; of these ``open`` where it writes."""


class OwnPath(NamedTuple):
    """The call that gives each process a path of its own, and its line; that at which another rank makes its own."""

    made: str
    line: int
    makes: int


def own_path(file: str, line: int) -> OwnPath | None:
    """Return why what a loop asks for is another file on each rank, where the other branch of a test makes it."""
    tree, asked = tree_of(file), asked_path(file, line)
    if asked is None:
        return None
    names = _names(asked)
    makers = [at for at, path, _ in _made(tree) if _names(path) & names and are_alternatives(file, line, at)]
    own = next(_own(tree, asked, DEPTH), None) if makers else None
    return OwnPath(ast.unparse(own), own.lineno, makers[0]) if own is not None else None


def unmade(file: str, line: int) -> tuple[str, dict[str, int]] | None:
    """Return the name of the file that a loop asks for, and those that the script makes, with the lines that do.

    None where one of the names is not written in the file, and where the script makes the one that is asked for.
    """
    tree, asked = tree_of(file), asked_path(file, line)
    wanted = _written(tree, asked) if asked is not None else set()
    told: dict[str, int] = {}
    for at, path, of_folder in _made(tree):
        names = _written(tree, path)
        if not names and not of_folder:
            return None
        told |= dict.fromkeys(names, at)
    return (wanted.pop(), told) if len(wanted) == 1 and told and not wanted & told.keys() else None


def asked_path(file: str, line: int) -> ast.expr | None:
    """Return the path that the loop around a line waits to be there; None where it waits for anything else."""
    found = question(file, line)
    test = found.asked if found is not None else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        there, test = found is not None and found.word == "while", test.operand
    else:
        there = found is not None and found.word == "until"
    match test if there else None:
        case ast.Call(func=ast.Attribute(value=path, attr=method), args=[]) if method in OF_METHOD:
            return path
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[path]) if name in OF_FUNCTION:
            return path
    return None


def _made(tree: Tree) -> Iterator[tuple[int, ast.expr, bool]]:
    """Yield the paths of files that a script makes, each with its line, and whether it is a folder."""
    for call in tree.of(ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else dotted(call.func) or ""
        number = GIVEN.get(name, int(resolve(tree, call.func) == "torch.save") if name == "save" else -1)
        if isinstance(call.func, ast.Attribute) and name in MAKES and resolve(tree, call.func) != "os.mkdir":
            yield call.lineno, call.func.value, name == "mkdir"
        elif 0 <= number < len(call.args) and _writes(name, call):
            yield call.lineno, call.args[number], name in {"mkdir", "makedirs"}


def _writes(name: str, call: ast.Call) -> bool:
    """Whether a call of ``open`` names a mode that makes a file; all others do."""
    given = (*call.args[1:2], *(each.value for each in call.keywords))
    modes = [each.value for each in given if isinstance(each, ast.Constant)]
    return name != "open" or any(isinstance(each, str) and set(each) & set("wax+") for each in modes)


def _own(tree: Tree, node: ast.expr, depth: int) -> Iterator[ast.Call]:
    """Yield the calls that an expression is made of, and that return something else in each process."""
    parts = list(ast.walk(node))
    calls = [each for each in parts if isinstance(each, ast.Call)]
    names = [each for each in parts if isinstance(each, (ast.Name, ast.Attribute)) and dotted(each)]
    if any(AGREED.search(dotted(each.func) or "") for each in calls) or any(is_exchanged(tree, each) for each in names):
        return
    yield from (each for each in calls if resolve(tree, each.func) in OWN)
    for each in names if depth else ():
        held = list(origins(tree, each))
        if len(held) == 1 and held[0][0] is tree and held[0][1] is not node:
            yield from _own(tree, held[0][1], depth - 1)


def _written(tree: Tree, node: ast.expr) -> set[str]:
    """Return the last part of a path, as it is written; nothing where it is made otherwise."""
    match node:
        case (
            ast.BinOp(op=ast.Div() | ast.Add(), right=last)
            | ast.Call(func=ast.Attribute(attr="join" | "joinpath"), args=[*_, last])
            | ast.Call(func=ast.Name(id="Path" | "str"), args=[last])
        ):
            return _written(tree, last)
        case ast.Constant(value=str(text)) | ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
            whole = isinstance(node, ast.Constant) or "/" in text
            return {Path(text).name} - {""} if whole else set()
        case ast.Name() | ast.Attribute():
            found = [_written(there, each) for there, each in origins(tree, node) if each is not node]
            return set().union(*found) if found and all(found) else set()
    return set()


def _names(node: ast.expr) -> set[str]:
    """Return the names and attributes that a path is made of."""
    return {text for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)) and (text := dotted(each))}
