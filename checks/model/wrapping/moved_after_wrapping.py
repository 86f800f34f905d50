"""The model is moved to its GPU after it was wrapped.

## What happens

DDP notes in its constructor on which device the parameters are, broadcasts them from rank 0 and prepares its buckets
there. `DDP(model).to(device)` wraps it on the CPU: with `device_ids` that is a ValueError; without, the broadcast
goes through the CPU, which NCCL refuses, and the buckets stay where the parameters were.

## How to be sure

Print `next(model.parameters()).device` before the line that wraps. Reported where nothing moves the model before.

## How to mend it

First `model.to(device)`, then `DDP(model, device_ids=[local_rank])`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/nn/parallel/distributed.py, the constructor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, Ailment, Finding, Fix, Severity, given, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP540", Severity.ERROR)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for DDP(...).to(...) of a model that the file makes, and does not move before."""
    for wrap in script.calls(DDP):
        attribute = script.tree.parents.get(wrap)
        moved = script.tree.parents.get(attribute) if isinstance(attribute, ast.Attribute) else None
        if (
            not isinstance(moved, ast.Call)
            or not isinstance(attribute, ast.Attribute)
            or attribute.attr not in {"to", "cuda"}
        ):
            continue
        model = given(wrap, 0, "module")
        if (
            model is None
            or "memory_format" in script.code(moved)
            or "dtype" in script.code(moved)
            or "cpu" in script.code(moved)
        ):
            continue
        made = script.held(model) if isinstance(model, ast.Name) else model
        if isinstance(made, ast.Call) and not _is_moved(script, model, made):
            first = f"{script.code(model)}.{attribute.attr}({', '.join(map(script.code, moved.args))})"
            yield Finding(
                "DistributedDataParallel wraps a model on the CPU, which is moved afterwards",
                (script.seen(wrap, f"DDP({first})"),),
                Fix("move the model, then wrap it"),
                script.place(wrap),
            )


def _is_moved(script: Script, model: ast.expr, made: ast.Call) -> bool:
    """Whether the model can be on a GPU before: something in its making, or in the file, moves or places it."""
    text = script.code(made)
    if ".to(" in text or ".cuda(" in text or "device" in text:
        return True
    name = script.code(model)
    return any(f"{name}{word}" in script.text for word in (".to(", ".cuda(")) or "set_default" in script.text
