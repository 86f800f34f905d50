"""A rank came to its end without rpc.shutdown(), while another one still called it.

## What happens

`torch.distributed.rpc` serves the calls of others in threads of the process, and nothing holds the process up for them:
a rank that only serves, as a parameter server does, runs to the last line of the script and ends. The next call to it
fails on the rank that calls: "RuntimeError: eof (this error originated at tensorpipe/...)", or "connection reset by
peer"; the process that ended can also die of an abort (SIGABRT), since its threads still run. `rpc.shutdown()` is what
waits: it returns once all ranks have come to it and no call is under way.

## How to be sure

The watch sees which rank came to the end of its program without an exception, and the error of the one that called it.
Look for `rpc.shutdown()` in the script: it stands on a way that not all ranks take, or nowhere.

## How to mend it

    rpc.init_rpc(name, rank=rank, world_size=world_size)
    if rank == 1:
        train()
    rpc.shutdown()   # on all ranks: those that serve wait here

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/distributed/rpc/api.py, `shutdown`: "block until all local and remote RPC
processes have reached this method".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Failed,
    Finding,
    Fix,
    Left,
    Severity,
    Training,
    place,
    resolve,
    tree_of,
    watch,
)

AILMENT = Ailment("DDP1425", Severity.ERROR)
OF_RPC = re.compile(r"\(this error originated at tensorpipe/")
SHUTDOWN = {"torch.distributed.rpc.shutdown", "torch.distributed.rpc.api.shutdown"}


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Name the rank that ended before, and where the shutdown stands that it did not come to."""
    if not OF_RPC.search(event.text):
        return
    ended = sorted({each.rank for each in training.of(Left, ended=True) if each.rank not in {event.rank, None}})
    failed = {each.rank for each in training.of(Failed)}
    if not ended or failed.intersection(ended):
        return
    file = event.site.file if event.site is not None else ""
    calls = [each for each in tree_of(file).of(ast.Call) if resolve(tree_of(file), each.func) in SHUTDOWN]
    yield Finding(
        f"rank{'s' if len(ended) > 1 else ''} {', '.join(map(str, ended))} ended without an rpc.shutdown() that waits "
        f"for all ranks: rank {event.rank} called it afterwards",
        (
            Evidence(event.said, "", f"rank {event.rank}"),
            *(Evidence("came to the end of its program", "waits in rpc.shutdown()", f"rank {rank}") for rank in ended),
            *(Evidence(_shown(file, each), "rpc.shutdown() on all ranks", f"{file}:{each.lineno}") for each in calls),
        ),
        Fix("call rpc.shutdown() on all ranks, at the end: those that serve wait there", diff=_diff(file, calls)),
        place(event.site, rank=event.rank),
    )


def _condition(file: str, call: ast.Call) -> str:
    """Return the innermost ``if`` that a call stands in."""
    above = tree_of(file).above(call)
    return next((" ".join(ast.unparse(each.test).split()) for each in above if isinstance(each, ast.If)), "")


def _shown(file: str, call: ast.Call) -> str:
    condition = _condition(file, call)
    return f"{ast.unparse(call)}{f', under `if {condition}`' if condition else ''}"


def _diff(file: str, calls: list[ast.Call]) -> str:
    for each in calls:
        if each.args or each.keywords:  # graceful=False waits for nobody
            return f"-{ast.unparse(each)}\n+{ast.unparse(each.func)}()"
        if condition := _condition(file, each):
            return f" if {condition}:\n     ...\n-    {ast.unparse(each)}\n+{ast.unparse(each)}"
    return f"+{ast.unparse(calls[0].func) if calls else 'torch.distributed.rpc.shutdown'}()"
