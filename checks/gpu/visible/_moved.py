"""What a source moves to a GPU, and where it names none."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import dotted

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def holders(script: Script, call: ast.Call) -> set[str | None]:
    """Return the names of what a call moves to a GPU: whose method it is, and who is given what it returns."""
    moved = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
    statement = script.tree.statement(call)
    given_to = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
    return {moved, *map(dotted, given_to)} - {None}


def moves(script: Script) -> list[ast.Call]:
    """Return the calls that put something on a GPU."""
    return [
        node
        for node in script.nodes(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in {"cuda", "to"}
    ]


def is_bare(call: ast.Call) -> bool:
    """Whether a call names no GPU: ``.cuda()``, ``.to("cuda")``."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
        return not call.args and not call.keywords
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == "cuda"
