"""Batches are copied to the GPU without blocking from memory that is not pinned, so that the rank waits for the copy.

## What happens

The GPU reads pinned memory by itself, while the rank goes on. A batch in pageable memory is first copied, piece by
piece, to a pinned buffer of CUDA's own, and the rank waits for that: `non_blocking=True` overlaps the copy with
nothing.

## How to be sure

A profile of torch.profiler has "Memcpy HtoD (Pageable -> Device)" in each step, and "Memcpy HtoD (Pinned -> Device)"
where it is mended. Reported where the file makes the loader without `pin_memory=True`, goes through it, copies its
batches with `non_blocking=True`, and pins nothing itself.

## How to mend it

Give the loader `pin_memory=True`: a thread beside the rank copies each batch to pinned memory before it is asked for. A
batch of a class of your own needs a method `pin_memory`. A loader whose data set holds tensors of a GPU cannot pin, and
copies nothing.

## Versions and sources

Holds for torch 2.2 to 2.13 on NVIDIA GPUs. Source: PyTorch tutorial "A guide on good usage of non_blocking and
pin_memory()"; PyTorch documentation, torch.utils.data, "Memory Pinning".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, keyword, lint

from ..._scripts.source import LOADER, gone_through

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP928", Severity.NOTE)
POSITION = 7  # of pin_memory among the arguments, counted from one
COPIES = {"to", "cuda"}


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for loops over a loader that does not pin, whose batches are copied without blocking."""
    if ".pin_memory" in script.text or not script.calls(LOADER):
        return
    told = set()
    for loop in script.nodes(ast.For):
        loader = _loader(script, loop.iter)
        copy = next(_copies(loop), None) if loader is not None and not _can_pin(loader) else None
        if loader is not None and copy is not None and loader not in told:
            told.add(loader)
            yield Finding(
                "the batches of this loader are in memory that is not pinned: non_blocking=True overlaps their copy "
                "with nothing, and the rank waits for it",
                (script.seen(copy), script.seen(loader, "pin_memory=True")),
                Fix(
                    "let the loader pin them",
                    diff=f"-{script.code(loader.func)}(...)\n+{script.code(loader.func)}(..., pin_memory=True)",
                ),
                script.place(loader),
            )


def _loader(script: Script, given: ast.expr) -> ast.Call | None:
    """Return what makes the loader that a loop goes through; None where that is not known for certain."""
    given = gone_through(script, given)
    held = script.held(given) if isinstance(given, (ast.Name, ast.Attribute)) else given
    is_one = isinstance(held, ast.Call) and script.resolve(held.func) == LOADER
    return held if is_one and isinstance(held, ast.Call) else None


def _can_pin(loader: ast.Call) -> bool:
    given = keyword(loader, "pin_memory")
    if given is not None:
        return not (isinstance(given, ast.Constant) and given.value is False)
    return len(loader.args) >= POSITION or any(each.arg is None for each in loader.keywords)


def _copies(loop: ast.For) -> Iterator[ast.Call]:
    """Yield the copies of what a loop is given that do not wait."""
    batch = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    for node in (each for statement in loop.body for each in ast.walk(statement)):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in COPIES and _root(value) in batch:
                waits = keyword(node, "non_blocking")
                if isinstance(waits, ast.Constant) and waits.value is True:
                    yield node


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
