"""What is there on one rank alone, and who comes to a line that uses it."""

from __future__ import annotations

import ast
import builtins
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import ONE_RANK, OTHER_RANKS

if TYPE_CHECKING:
    from ddpdoctor.check import Script

ASKS = re.compile(
    r"rank|main(?!__)|master|primary|chief|leader|first|zero|proc|log|writ|print|verbose|save|node|gpu|host|root|record|report"
    r"|wandb|track|board|display|show|debug",
    re.IGNORECASE,
)
"""Words of a test that can keep ranks away by what is not seen here."""


def is_caught(script: Script, node: ast.AST) -> bool:
    """Whether a node stands in a try that can handle an AttributeError or a NameError."""
    return any(
        isinstance(each, ast.Try) and any(_takes_any(handler.type) for handler in each.handlers)
        for each in script.tree.above(node)
    )


def _takes_any(types: ast.expr | None) -> bool:
    """Whether a handler takes such an error, or is of a type that is not Python's own."""
    if isinstance(types, ast.Tuple):
        return any(map(_takes_any, types.elts))
    known = getattr(builtins, types.id, None) if isinstance(types, ast.Name) else None
    if not isinstance(known, type):
        return True
    return issubclass(AttributeError, known) or issubclass(UnboundLocalError, known)


def others_go_elsewhere(script: Script, given: ast.AST, read: ast.AST) -> bool:
    """Whether the other ranks are sent into something of their own before they can come to a line: workers, say."""
    around = script.function(given) or script.module
    for branch in (each for each in script.inside(around) if isinstance(each, ast.If)):
        side = script.who(branch.test)
        away = branch.orelse if side == ONE_RANK else branch.body if side == OTHER_RANKS else []
        if away and branch.lineno < getattr(read, "lineno", 0) and _can_stay(script, away):
            return True
    return False


def _can_stay(script: Script, block: list[ast.stmt]) -> bool:
    """Whether a rank can stay in a block: it waits there in a loop, or in what is called last."""
    if any(isinstance(node, (ast.While, ast.Await)) for node in script.inside(*block)):
        return True
    last = block[-1]
    is_call = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
    return is_call and re.match(r"print|logg(?:er|ing)\b|os\.|(?:torch\.)?dist", script.code(last)) is None
