"""A collective of the script's own stands within Join, which does not answer it for a rank without batches.

## What happens

`with Join([model])` lets a rank that has no batch left answer the collectives of the others' forwards and backwards. It
knows those of DistributedDataParallel and ZeroRedundancyOptimizer, and no others: an `all_reduce` of the loss in the
same loop meets what Join sends next, and so does the step of a ZeroRedundancyOptimizer that Join was not given. The
numbers are wrong, the training hangs, or gloo ends a process.

## How to be sure

ddpdoctor compares the last communications of the ranks by their number within the group. Here one rank called a
collective in a line within Join, and what another one sent under the same number was of another line.

## How to mend it

Move the collective behind Join, and add up on each rank what it is to reduce:

    with Join([model]):
        for inputs, targets in loader:
            ...
            total += loss.detach()
    dist.all_reduce(total)

A ZeroRedundancyOptimizer belongs into Join's list: `with Join([model, optimizer])`.

Or give all ranks the same number of batches, and leave Join out.

## Versions and sources

Measured with torch 2.13, gloo, two ranks. Source: PyTorch documentation, "Generic Join Context Manager". Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, PeerLost, Severity, Stalled, Table, place

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import short, table
from ..hangs.reasons._joins import InJoin, met_in_join

AILMENT = Ailment("DDP757", Severity.ERROR)


@on_hang(Hang.JOINS)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Report what the collective met, where all ranks wait."""
    if found := met_in_join({each.rank: each.recent for each in event.ranks}):
        yield _finding(found, table(event))


@on_loss(Loss.JOINS)
def where_it_ended_a_rank(event: PeerLost) -> Iterator[Finding]:
    """Report it where gloo has ended a process for it."""
    found = met_in_join({each.rank: each.recent for each in event.progress})
    if found:
        yield _finding(found, None)


def _with(found: InJoin) -> str:
    """Return the code of Join with the optimizer in its list."""
    head, bracket, tail = found.join.partition("]")
    return f"{head}, {found.left_out}{bracket}{tail}"


def _finding(found: InJoin, shown: Table | None) -> Finding:
    call, met = found.call, found.met
    left = f", in the step of {found.left_out}, which Join was not given" if found.left_out else ""
    return Finding(
        f"rank {found.rank} calls {call.operation} at {short(call.site)} within `with {found.join}`{left}: rank "
        f"{found.other} has no batch left, and answers with {met.operation} at {short(met.site)}",
        (
            Evidence(f"{call.operation}, number {call.number} of its group", "", f"rank {found.rank}, {call.site}"),
            Evidence(
                f"{met.operation}, number {met.number} of its group",
                f"{call.operation}: Join answers for the model alone",
                f"rank {found.other}, {met.site}",
            ),
        ),
        Fix("give Join the optimizer, too", diff=f"-with {found.join}:\n+with {_with(found)}:")
        if found.left_out
        else Fix(
            "move the collective behind Join",
            diff=f" with {found.join}:\n     for inputs, targets in loader:\n         ...\n"
            f"-        dist.{call.operation}(total)\n+dist.{call.operation}(total)",
        ),
        place(call.site, rank=found.rank),
        table=shown,
    )
