"""A broadcast or a reduce is not told which rank it goes out from, or comes to.

## What happens

`dist.broadcast(tensor)` does not know whose tensor all are to get, and `dist.reduce(tensor)` not who is to have the
sum. Every rank ends with "ValueError: Must specify global_rank or group_rank". Other than `broadcast_object_list`,
`scatter` and `gather`, they have no rank 0 by default.

## How to be sure

The traceback ends in that line. Reported where the call passes the tensor alone.

## How to mend it

`dist.broadcast(tensor, src=0)`; `dist.reduce(tensor, dst=0)`.

## Versions and sources

Seen with torch 2.13 CPU. Source: torch/distributed/distributed_c10d.py, `broadcast`, `reduce`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Edit, Finding, Fix, Severity, is_open, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP771", Severity.ERROR)
WANTED = {"torch.distributed.broadcast": "src", "torch.distributed.reduce": "dst"}


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for calls with the tensor alone."""
    for call in script.calls(*WANTED):
        wanted = WANTED[script.resolve(call.func) or ""]
        named = {word.arg for word in call.keywords}
        if len(call.args) != 1 or is_open(call) or {wanted, f"group_{wanted}"} & named:
            continue
        name = script.code(call.func)
        tensor = script.code(call.args[0])
        yield Finding(
            f"{name} is not told {wanted}, the rank that it {'goes out from' if wanted == 'src' else 'comes to'}",
            (script.seen(call, f"{name}({tensor}, {wanted}=0)"),),
            Fix("name the rank", edits=(_added(call.args[0], f", {wanted}=0"),)),
            script.place(call),
        )


def _added(after: ast.expr, text: str) -> Edit:
    """Return the edit that puts a text behind an expression."""
    line, column = after.end_lineno or after.lineno, after.end_col_offset or after.col_offset
    return Edit(line, column, line, column, text)
