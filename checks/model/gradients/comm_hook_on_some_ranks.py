"""One rank alone gives its model a communication hook.

## What happens

`register_comm_hook` replaces the all-reduce of DistributedDataParallel by another exchange: halves of the precision,
fewer numbers, another order. Each rank runs the hook of its own model. Where one rank has a hook and the others have
none, they answer each other with tensors of other types and sizes: gloo ends the process ("Received data size doesn't
match expected size"), NCCL waits, or sums bytes that are no numbers of the kind. Nothing compares the hooks.

## How to be sure

In a source, and in a running training: the line that calls `register_comm_hook` stands behind a test that one rank
alone passes.

## How to mend it

Register it on all ranks; print on one.

    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if rank == 0:
        print("gradients are compressed")

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13, gloo, two ranks. Source: PyTorch documentation, "DDP Communication
Hooks".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    CommHookGiven,
    Evidence,
    Finding,
    Fix,
    Joined,
    Severity,
    Training,
    lint,
    one_rank_calls,
    one_rank_only,
    place,
    watch,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1571", Severity.ERROR)
MEND = Fix(
    "register the hook on all ranks",
    diff="-if rank == 0:\n-    model.register_comm_hook(state, hook)\n+model.register_comm_hook(state, hook)",
)


@watch(CommHookGiven)
def while_training(event: CommHookGiven, training: Training) -> Iterator[Finding]:
    """Look at what stands around the line, where there are several ranks."""
    site = event.site
    guard = (one_rank_only(site.file, site.line) or one_rank_calls(site.file, site.function)) if site else ""
    if guard and any(each.world_size > 1 for each in training.of(Joined)):
        yield Finding(
            f"rank {event.rank} alone is given the communication hook {event.name}, {guard}: the others exchange "
            "gradients without it",
            (Evidence(guard, "the same hook on all ranks", str(event.site)),),
            MEND,
            place(event.site, rank=event.rank),
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for the call behind a test that one rank alone passes."""
    for call in script.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "register_comm_hook":
            continue
        guard = script.one_rank_guard(call)
        if guard is not None:
            yield Finding(
                "one rank alone is given the communication hook: the others exchange gradients without it",
                (script.seen(call, "on all ranks"), script.seen(guard.test)),
                MEND,
                script.place(call),
            )
