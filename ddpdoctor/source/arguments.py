"""What a call passes."""

from __future__ import annotations

import ast


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return what a call passes by a keyword."""
    return next((word.value for word in call.keywords if word.arg == name), None)


def given(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """Return an argument that is passed by its place or its name; None where it is not, or cannot be seen."""
    if any(isinstance(each, ast.Starred) for each in call.args[: place + 1]):
        return None
    return call.args[place] if place < len(call.args) else keyword(call, name)


def by_parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    """Return what a call passes, by the names of the parameters of the function that it calls, but for ``self``."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return dict(zip(names, call.args, strict=False)) | {each.arg: each.value for each in call.keywords if each.arg}


def default_of(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> ast.expr | None:
    """Return what a parameter is where a call passes nothing for it."""
    places = [*function.args.posonlyargs, *function.args.args]
    given = dict(zip([each.arg for each in reversed(places)], reversed(function.args.defaults), strict=False))
    words = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return given.get(name) or next((value for each, value in words if each.arg == name), None)


def is_open(call: ast.Call) -> bool:
    """Whether a call passes ``*args`` or ``**options``: arguments that cannot be seen."""
    return any(isinstance(each, ast.Starred) for each in call.args) or any(word.arg is None for word in call.keywords)
