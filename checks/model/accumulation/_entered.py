"""Where a source enters no_sync, of DDP or of a framework, by a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATE, ACCELERATOR, COLLECTIVES, FABRIC, dotted, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Framework, Script

FABRICS = ("lightning.fabric.Fabric", "lightning.Fabric", "lightning_fabric.Fabric")
EXCHANGES = COLLECTIVES - {"torch.distributed.barrier", "torch.distributed.init_process_group"}

Entered = tuple[ast.Call, ast.expr, bool, "Framework | None"]
"""The call of the context, the test, whether it has to hold, and whose context it is: a framework's, or DDP's own."""


def entered_by_a_test(script: Script) -> Iterator[Entered]:
    """Yield the contexts of functions that exchange nothing by themselves."""
    for call in script.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"no_sync", "no_backward_sync"}:
            continue
        if _exchanges(script, call):
            continue
        if call.func.attr == "no_backward_sync":
            enabled = keyword(call, "enabled") or (call.args[1] if len(call.args) > 1 else None)
            if enabled is not None and script.is_a(call.func.value, *FABRICS):
                yield call, enabled, True, FABRIC
        elif script.is_a(call.func.value, ACCELERATOR):
            yield from ((call, *each, ACCELERATE) for each in _tested(script, call))
        elif script.wrap(call.func.value) is not None:
            yield from ((call, *each, None) for each in _tested(script, call))


def _tested(script: Script, call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the test of ``no_sync() if test else nullcontext()``, or of the branch that the block stands in."""
    match script.tree.parents.get(call):
        case ast.IfExp(test=test, body=body):
            yield test, body is call
            return
    block = script.tree.statement(call)
    match script.tree.parents.get(block) if block is not None else None:
        case ast.If(test=decides, body=first):
            yield decides, block in first


def _exchanges(script: Script, call: ast.Call) -> bool:
    """Whether the function around a call exchanges something by itself, as gradients or weights."""
    around = script.function(call) or script.module
    paths = [script.resolve(each.func) or "" for each in ast.walk(around) if isinstance(each, ast.Call)]
    return bool(EXCHANGES & {*paths}) or any("average" in (dotted(each.func) or "")
               for each in ast.walk(around) if isinstance(each, ast.Call))  # fmt: skip
