"""Gradients are accumulated over several steps, and reduced in each of them.

## What happens

Where `optimizer.step()` comes every k-th step only, DDP still averages the gradients of all ranks in every backward: k
times the communication, k - 1 of them for nothing. The result is right, so this is a note.

## How to be sure

In a source (`ddpdoctor lint`): the step of the optimizer stands behind a test of `% k`, the backward does not, and
nothing in reach speaks of `no_sync` or `require_backward_grad_sync`.

## How to mend it

    with model.no_sync() if (i + 1) % k else contextlib.nullcontext():
        loss = criterion(model(inputs), targets) / k
        loss.backward()

The forward has to stand in the block as well.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, `DistributedDataParallel.no_sync`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP552", Severity.NOTE)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loop whose optimizer steps every k-th time, and whose backward reduces each time."""
    for node in script.nodes(ast.Call) if script.calls(DDP) and not script.frameworks else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="step", value=ast.Name(id=name))) if name.startswith("opt"):
                loop = next((each for each in script.tree.above(node) if isinstance(each, (ast.For, ast.While))), None)
                test = next((each.test for each in script.guards(node) if _counts(each.test)), None)
                backward = _backward(script, loop) if loop is not None and test is not None else None
                if backward is None or test is None or project.says("no_sync|require_backward_grad_sync"):
                    continue
                yield Finding(
                    "gradients are accumulated, and all ranks average them in every step",
                    (script.seen(backward, "model.no_sync() in all steps but the last"), script.seen(test)),
                    Fix("skip the reduction in all steps but the last", diff=MEND),
                    script.place(backward),
                )


MEND = "+with model.no_sync() if (i + 1) % k else contextlib.nullcontext():\n     loss = criterion(model(x), y) / k"


def _counts(test: ast.expr) -> bool:
    return any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in ast.walk(test))


def _backward(script: Script, loop: ast.AST) -> ast.Call | None:
    """Return the backward of a loop that trains a wrapped model in every step."""
    nodes = [*script.inside(loop)]
    wraps = [script.wrap(node.func) for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    if not any(each is not None and each.sure and each.kind == "DistributedDataParallel" for each in wraps):
        return None
    found = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".backward")]
    return found[0] if len(found) == 1 and not any(_counts(each.test) for each in script.guards(found[0])) else None
