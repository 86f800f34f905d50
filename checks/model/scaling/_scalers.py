"""Which scalers of gradients a source makes, and where it calls them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script

SCALERS = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.cuda.amp.grad_scaler.GradScaler",
           "torch.amp.grad_scaler.GradScaler")  # fmt: skip


def calls_of_scalers(script: Script, statement: ast.stmt, method: str) -> Iterator[ast.Call]:
    """Yield the calls of a method of a scaler that is not switched off."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            held = ast.unparse(node.func.value)
            made = [each.value for each in script.nodes(ast.Assign) if held in map(ast.unparse, each.targets)]
            if made and all(_is_scaler(script, each) for each in made):
                yield node


def _is_scaler(script: Script, made: ast.expr) -> bool:
    """Whether an expression makes a scaler that nothing switches off."""
    return (
        isinstance(made, ast.Call)
        and script.resolve(made.func) in SCALERS
        and not any(each.arg in {"enabled", None} for each in made.keywords)
    )


def made_scalers(script: Script, calls: list[ast.Call]) -> Iterator[ast.Call]:
    """Yield where the scalers are made whose methods these are."""
    held = {ast.unparse(each.func.value) for each in calls if isinstance(each.func, ast.Attribute)}
    for each in script.nodes(ast.Assign):
        if isinstance(each.value, ast.Call) and held & set(map(ast.unparse, each.targets)):
            yield each.value
