"""Folders that a source makes, and which ranks come to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    given,
    is_open,
)

from ...._frameworks.accelerate import is_of_several_processes

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script


def is_made_by_some(script: Script, call: ast.Call, path: ast.expr) -> bool:
    """Whether another line, behind a test that can depend on the rank, makes the folder of an option before this one.

    One further down in the same function comes too late.
    """
    options = (ast.Attribute, ast.Subscript)
    parts = {script.code(each) for each in ast.walk(script.value(path)) if isinstance(each, options)}
    here = script.function(call)
    others = [
        each
        for each in script.calls("os.makedirs", "os.mkdir")
        if each.args and (each.lineno < call.lineno or script.function(each) is not here)
    ]
    return any(
        each is not call
        and script.code(each.args[0]) in parts
        and any(guard.is_rankish(script.tree) for guard in script.guards(each))
        for each in others
    )


def made(script: Script) -> Iterator[tuple[ast.Call, ast.expr, str]]:
    """Yield the calls that make a folder which is not to be there, its path, and what to write instead."""
    for call in script.calls("os.makedirs", "os.mkdir"):
        path, allowed = given(call, 0, "name"), given(call, 2, "exist_ok")
        if path is not None and allowed is None:
            yield call, path, f"os.makedirs({script.code(path)}, exist_ok=True)"
    for call in script.nodes(ast.Call):  # of a Path
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "mkdir" or script.resolve(call.func):
            continue
        if not is_open(call) and given(call, 2, "exist_ok") is None:
            words = [*map(script.code, call.args), *(f"{each.arg}={script.code(each.value)}" for each in call.keywords)]
            yield call, call.func.value, f"{script.code(call.func)}({', '.join([*words, 'exist_ok=True'])})"


def trains_by_accelerate(script: Script, project: Around) -> bool:
    """Whether the file's own loop trains several processes of Accelerate."""
    return is_of_several_processes(script, project) and any(
        isinstance(each.func, ast.Attribute) and each.func.attr == "backward" and bool(each.args)
        for each in script.nodes(ast.Call)
    )


def asks_for(script: Script, test: ast.expr, path: ast.expr) -> bool:
    """Whether a test asks whether there is something at a path."""
    match path:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name() as inner]):
            path = inner
    code = script.code(test)
    return any(word in code for word in ("exists", "isdir", "is_dir")) and script.code(path) in code
