"""The forward stands outside of no_sync, so that gradients are reduced all the same.

## What happens

DDP decides in the forward whether the following backward reduces the gradients. `with model.no_sync():` around the
backward alone comes too late: every micro-batch is reduced, and accumulating gradients saves no communication.

## How to be sure

Measured on two ranks: the gradients after such a backward are the mean of the ranks. Reported where only a backward
stands in the block, no forward, and the wrapped model is called before it in the same function.

## How to mend it

Put the forward into the block as well.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: PyTorch documentation, DistributedDataParallel.no_sync,
the warning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeGuard

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP543", Severity.WARNING)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for blocks of no_sync that hold a backward and no call of the model."""
    for node in script.nodes(ast.With):
        match _entered(node), node.body:
            case ast.Call(func=ast.Attribute(value=model, attr="no_sync")), body:
                wrap = script.wrap(model)
                code = script.code(model)
                calls = [each for each in script.inside(*body) if isinstance(each, ast.Call)]
                names = {ast.unparse(each.func) for each in calls}
                if wrap is None or not all(name.endswith(".backward") for name in names) or not names:
                    continue
                before = [each for each in ast.walk(script.function(node) or script.module) if _is_forward(each, code)]
                if before and before[0].lineno < node.lineno:
                    yield Finding(
                        f"the forward of {code} is outside of no_sync: this backward reduces gradients all the same",
                        (script.seen(node), script.seen(before[0], "within the block")),
                        Fix("put the forward into the block as well"),
                        script.place(node),
                    )


def _entered(node: ast.With) -> ast.expr | None:
    """Return the one context of a block; of ``no_sync() if more else nullcontext()``, the first."""
    match node.items:
        case [ast.withitem(context_expr=ast.IfExp(body=chosen, orelse=other))]:
            return chosen if "no_sync" in ast.unparse(chosen) else other
        case [ast.withitem(context_expr=context)]:
            return context
    return None


def _is_forward(node: ast.AST, code: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == code
