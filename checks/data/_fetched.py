"""Functions that fetch a file and write it to a path that they are handed, and what lets ranks come one by one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import given

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

FETCHES = {"requests.get", "urllib.request.urlopen"}
IN_TURN = re.compile(r"lock|te?mp|\.part|rename|replace\(|move\(|rank|barrier", re.IGNORECASE)
"""What says that a file comes to its place at once, or that the ranks do not write it together."""


def by_own_function(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls of functions of the file that fetch something and write it to a path that they are handed."""
    functions = dict.fromkeys(script.function(call) for call in script.calls(*FETCHES))
    for function in functions:
        if isinstance(function, ast.FunctionDef):
            yield from _to_a_path(script, function, script.sites(function))


def by_another_files(script: Script, project: Around) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls of such functions of other files."""
    if not project.others_say(r"\brequests\.get\(|\burlopen\("):
        return
    for call in script.nodes(ast.Call):
        found = script.defined(call.func) if call.args or call.keywords else None
        if found is None or found[0] is script.tree or not isinstance(found[1], ast.FunctionDef):
            continue
        tree, function = found[0], found[1]
        inside = (each for each in ast.walk(function) if isinstance(each, ast.Call))
        if any(script.names_in(tree, each.func) in FETCHES for each in inside):
            yield from _to_a_path(script, function, [call])


def _to_a_path(script: Script, function: ast.FunctionDef, sites: list[ast.Call]) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls of a function that writes to a path which it is handed, and that path."""
    if IN_TURN.search(ast.unparse(function)):
        return
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]  # which no call passes
    for node in script.inside(*function.body):
        match node:
            case ast.Call(func=ast.Name(id="open"), args=[ast.Name(id=path), ast.Constant(value="wb")]):
                given_paths = [(site, given(site, names.index(path), path)) for site in sites if path in names]
                yield from ((site, where) for site, where in given_paths if where is not None)


LOCK = re.compile(r"(?<!b)lock\Z", re.IGNORECASE)
"""The class, or the variable, of a lock that processes take in turn (``FileLock``, ``portalocker.Lock``)."""


def takes_turns(script: Script, call: ast.Call) -> bool:
    """Whether a rank waits for a lock before it comes to a line: the first downloads, the others find it there."""
    around = [each for each in script.tree.above(call) if isinstance(each, (ast.With, ast.AsyncWith))]
    names = [ast.unparse(_called(item.context_expr)) for each in around for item in each.items]
    return any(LOCK.search(name) and not name.startswith("threading.") for name in names)


def _called(given: ast.expr) -> ast.expr:
    return given.func if isinstance(given, ast.Call) else given
