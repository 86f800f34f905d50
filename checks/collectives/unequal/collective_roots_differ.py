"""The ranks name different roots of one broadcast, gather, reduce or scatter.

## What happens

`src` and `dst` name the one rank that gives, or gets: each rank has to name the same. Where each names itself
(`dist.gather(x, parts, dst=rank)`), or takes the number on its host for it (`src=local_rank`), each waits for messages
that nobody sends. A broadcast of which each rank is the source ends at once and changes nothing.

## How to be sure

Print `src` or `dst` on all ranks. `ddpdoctor run` compares them when the ranks wait.

## How to mend it

Name one rank: `dst=0`. `consolidate_state_dict(to=0)` of a ZeroRedundancyOptimizer takes one number, too. In a group of
some ranks it is the global number of one of its members: `dist.get_global_rank(group, 0)`.

## Versions and sources

Holds for torch 2.2 to 2.15. Source: torch.distributed.distributed_c10d, `gather`, `reduce`, `broadcast`, `scatter`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, Stalled, calls_at, last_name, place

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._pairs import root_of
from ..hangs._told import seen, short, table
from ..hangs.calls._compared import first_mismatch, roots_apart

if TYPE_CHECKING:
    from ddpdoctor.check import Site

AILMENT = Ailment("DDP709", Severity.ERROR)


@on_hang(Hang.ROOTS)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield the call, and the root that each of two ranks names."""
    if pair := first_mismatch(event.ranks) or roots_apart(event):
        (rank, ours), (other, theirs) = pair
        word = "src" if ours.operation in {"broadcast", "scatter"} else "dst"
        at = "" if ours.site == theirs.site else f" at {short(theirs.site)}"
        yield Finding(
            f"{ours.operation} at {short(ours.site)}: rank {rank} names rank {root_of(ours)} of its group for {word}, "
            f"rank {other} names rank {root_of(theirs)}{at}",
            (
                Evidence(f"{word} is rank {root_of(ours)}", "one rank, the same on all ranks", f"rank {rank}"),
                Evidence(f"{word} is rank {root_of(theirs)}", "", f"rank {other}"),
                *seen(event),
            ),
            _consolidated(ours.site) or _decided(ours.site, ours.operation, word) or _same(ours.operation, word),
            place(ours.site),
            table=table(event),
        )


def _same(operation: str, word: str) -> Fix:
    return Fix(
        "name the same rank on all ranks", diff=f"-dist.{operation}(..., {word}=rank)\n+dist.{operation}(..., {word}=0)"
    )


def _decided(site: Site | None, operation: str, word: str) -> Fix | None:
    """Return the fix where each rank works out for itself whom to name, and that is not its own number."""
    for call in calls_at(site.file, site.line) if site else ():
        for each in call.keywords:
            name = each.value.id if each.arg == word and isinstance(each.value, ast.Name) else ""
            if name and "rank" not in name and last_name(call.func) == operation:
                return Fix(
                    "let one rank decide for all which rank is named",
                    diff=f"+root = torch.tensor({name}, device=device)\n+dist.broadcast(root, src=0)\n"
                    f"-dist.{operation}(..., {word}={name})\n+dist.{operation}(..., {word}=int(root))",
                )
    return None


def _consolidated(site: Site | None) -> Fix | None:
    """Return the fix where a sharded optimizer's state is brought together on a rank that each names for itself."""
    for call in calls_at(site.file, site.line) if site else ():
        match call.func:
            case ast.Attribute(value=owner, attr="consolidate_state_dict"):
                name = ast.unparse(owner)
                return Fix(
                    "bring the whole state to one rank, which all ranks name, and save it there",
                    diff=f"-{ast.unparse(call)}\n+{name}.consolidate_state_dict(to=0)   # called by all ranks\n"
                    f"+if dist.get_rank() == 0:\n+    torch.save({name}.state_dict(), path)",
                )
    return None
