"""Optimizers in a source: of which model they hold the parameters, and whether they are built anew."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def is_optimizer_of(script: Script, call: ast.Call, model: str) -> bool:
    """Whether a call builds an optimizer of torch's from all parameters of a model."""
    path = script.resolve(call.func) or ""
    return path.startswith("torch.optim.") and bool(call.args) and ast.unparse(call.args[0]) == f"{model}.parameters()"


def is_built_again(script: Script, before: ast.stmt) -> bool:
    """Whether what a statement assigns is assigned anew later."""
    target = ast.unparse(before.targets[0]) if isinstance(before, ast.Assign) else ""
    later = [node for node in script.nodes(ast.Assign) if node.lineno > before.lineno]
    return any(ast.unparse(each) == target for node in later for each in node.targets)
