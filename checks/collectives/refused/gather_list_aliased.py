"""All places of the list that is gathered into are one tensor.

## What happens

`[torch.zeros_like(x)] * n` is a list of n times the same tensor. all_gather writes what each rank sent into it, one
after the other, so that in the end every place shows what the last rank sent.

## How to be sure

`parts[0] is parts[1]` is true. Reported where such a list is handed to all_gather or gather; `[None] * n`, for
objects, is right. In a running training (`ddpdoctor run`) a line is reported that has done so twice, however the list
was made: places that lie in the same memory.

## How to mend it

Make a tensor for each rank: `[torch.zeros_like(x) for _ in range(dist.get_world_size())]`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Measured with gloo on two ranks: both places showed the value
of rank 1.
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
    GatherAliased,
    Severity,
    given,
    lint,
    place,
    watch,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP753", Severity.ERROR)


GATHER = ("torch.distributed.all_gather", "torch.distributed.gather")


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a list of one tensor, repeated, that is gathered into."""
    for call in script.calls(*GATHER):
        place = 0 if script.resolve(call.func) == GATHER[0] else 1
        name = "tensor_list" if place == 0 else "gather_list"
        into = given(call, place, name)
        made = script.value(into) if into is not None else None
        match made:
            case ast.BinOp(left=ast.List(elts=[ast.Call() as tensor]), op=ast.Mult(), right=count):
                right = f"[{script.code(tensor)} for _ in range({script.code(count)})]"
                yield Finding(
                    f"{script.code(call.func)} fills a list whose places are all the same tensor",
                    (script.seen(made, right), script.seen(call)),
                    Fix("make a tensor for each rank", edits=(script.replaced(made, right),)),
                    script.place(made),
                )


@watch(GatherAliased)
def while_training(event: GatherAliased) -> Iterator[Finding]:
    """Tell the line that gathers into one tensor."""
    if event.rank == 0:
        yield Finding(
            f"{event.operation} fills a list whose {event.places} places are one tensor, with what the last rank sent",
            (Evidence("places of the list that lie in the same memory", "a tensor for each rank", str(event.site)),),
            Fix(
                "make a tensor for each rank",
                diff="-parts = [torch.zeros_like(x)] * dist.get_world_size()\n"
                "+parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]",
            ),
            place(event.site),
        )
