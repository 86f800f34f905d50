"""Which scalers of gradients a source makes, and where it calls them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import is_open, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Script

SCALERS = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.cuda.amp.grad_scaler.GradScaler",
           "torch.amp.grad_scaler.GradScaler")  # fmt: skip


def calls_of_scalers(script: Script, statement: ast.stmt, method: str, *, switched: bool = False) -> Iterator[ast.Call]:
    """Yield the calls of a method of a scaler that is not switched off; ``switched``: also where an option decides."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            held = ast.unparse(node.func.value)
            made = [each.value for each in script.nodes(ast.Assign) if held in map(ast.unparse, each.targets)]
            if made and all(_is_scaler(script, each, switched=switched) for each in made):
                yield node


def _is_scaler(script: Script, made: ast.expr, *, switched: bool) -> bool:
    """Whether an expression makes a scaler that nothing switches off."""
    if not isinstance(made, ast.Call) or script.resolve(made.func) not in SCALERS or is_open(made):
        return False
    enabled = keyword(made, "enabled")
    held = script.value(enabled) if enabled is not None else None
    return bool(held.value) if isinstance(held, ast.Constant) else held is None or switched


def made_scalers(script: Script, calls: list[ast.Call]) -> Iterator[ast.Call]:
    """Yield where the scalers are made whose methods these are."""
    held = {ast.unparse(each.func.value) for each in calls if isinstance(each.func, ast.Attribute)}
    for each in script.nodes(ast.Assign):
        if isinstance(each.value, ast.Call) and held & set(map(ast.unparse, each.targets)):
            yield each.value
