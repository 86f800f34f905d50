"""Where a source leaves each rank on the first GPU: what moves something there, and what chooses another one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    dotted,
    keyword,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def holders(script: Script, call: ast.Call) -> set[str | None]:
    """Return the names of what a call moves to a GPU: whose method it is, and who is given what it returns."""
    moved = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
    statement = script.tree.statement(call)
    given_to = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
    return {moved, *map(dotted, given_to)} - {None}


def on_current(script: Script) -> Iterator[ast.Call]:
    """Yield what makes a context on the current GPU: loaders that pin memory, and torch.cuda.synchronize.

    A barrier over NCCL takes the GPU of the rank's number.
    """
    for call in script.calls("torch.utils.data.DataLoader", "torch.cuda.synchronize"):
        pins = keyword(call, "pin_memory")
        is_pinned = isinstance(pins, ast.Constant) and pins.value is True
        if script.all_ranks_reach(call) and (is_pinned or not (call.args or call.keywords)):
            yield call


def named(script: Script, call: ast.Call) -> str:
    pins = keyword(call, "pin_memory") is not None
    return "pin_memory=True" if pins else f"{script.code(call.func)}()"


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
