"""no_sync is entered on some ranks only, so that the others wait for gradients that nobody sends.

## What happens

Within `no_sync()` a backward exchanges nothing. Where the rank decides who enters it, the others begin to reduce their
gradients, and wait for the rank that has skipped that: until the time-out, or until the rank reduces something else.

## How to be sure

In a source (`ddpdoctor lint`): `no_sync()` stands under a condition on the rank, and the forward is not. In a running
training: ddpdoctor looks at the line of the first forward within no_sync, for the same.

## How to mend it

Enter it on all ranks alike, by the number of the batch:

    last = (index + 1) % accumulate == 0
    with contextlib.nullcontext() if last else model.no_sync():
        criterion(model(inputs), targets).backward()

## Versions and sources

Measured with torch 2.13, gloo, two ranks. Source: PyTorch documentation, "DistributedDataParallel.no_sync". Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    SyncSkipped,
    is_about_rank,
    lint,
    place,
    watch,
    withs_around,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP583", Severity.ERROR)
FIX = Fix(
    "enter no_sync on all ranks alike, by the number of the batch",
    diff="+last = (index + 1) % accumulate == 0\n+with contextlib.nullcontext() if last else model.no_sync():\n"
    "     loss_of(model(inputs)).backward()",
)


@watch(SyncSkipped)
def while_training(event: SyncSkipped) -> Iterator[Finding]:
    """Read the ``with`` statement around the first forward that is within no_sync."""
    if event.site is None:
        return
    for statement in withs_around(event.site.file, event.site.line):
        for item in statement.items:
            test = _chooses(item.context_expr)
            if test is not None and _parts_ranks(event.site.file, test):
                code = ast.unparse(item.context_expr)
                yield Finding(
                    f"no_sync is entered where {ast.unparse(test)}: the other ranks wait for this one's gradients",
                    (
                        Evidence(f"with {code}", "the same on all ranks", f"{event.site.file}:{statement.lineno}"),
                        Evidence("a forward within no_sync", "", f"rank {event.rank}, {event.site}"),
                    ),
                    FIX,
                    place(event.site, rank=event.rank),
                )
                return


def _parts_ranks(file: str, test: ast.expr) -> bool:
    """Whether a test compares the rank with a number that one rank has; -1 often stands for one process alone."""
    return any(
        isinstance(each, ast.Compare)
        and is_about_rank(file, each.left)
        and isinstance(each.comparators[0], ast.Constant)
        and type(each.comparators[0].value) is int
        for each in ast.walk(test)
    )


def _chooses(node: ast.expr) -> ast.expr | None:
    """Return the test of ``a if test else b``, where one of the two is no_sync."""
    if not isinstance(node, ast.IfExp):
        return None
    sides = [_is_no_sync(each) for each in (node.body, node.orelse)]
    return node.test if any(sides) and not all(sides) else None


def _is_no_sync(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "no_sync"


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a ``with`` statement that enters no_sync on one rank, or on all others."""
    for statement in script.nodes(ast.With):
        for item in statement.items:
            test = _chooses(item.context_expr)
            if test is None or script.one_rank_guard(statement) is not None:
                continue
            call = next(
                each for each in ast.walk(item.context_expr) if isinstance(each, ast.expr) and _is_no_sync(each)
            )
            guard = script.guards(call)[0]
            if guard.test is test and guard.who(script.tree) is not None:
                yield Finding(
                    "no_sync is entered on some ranks only: the others wait for their gradients",
                    (script.seen(item.context_expr, "the same on all ranks"), script.seen(test)),
                    FIX,
                    script.place(call),
                )
