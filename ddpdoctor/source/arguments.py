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


def is_open(call: ast.Call) -> bool:
    """Whether a call passes ``*args`` or ``**options``: arguments that cannot be seen."""
    return any(isinstance(each, ast.Starred) for each in call.args) or any(word.arg is None for word in call.keywords)
