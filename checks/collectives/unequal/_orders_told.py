"""What is told of calls that two ranks make in another order: that of a set, of branches, of groups."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Fix, place

from ..._findings.few import few
from ..hangs._told import seen, short, table

if TYPE_CHECKING:
    from ddpdoctor.check import Communication, Stalled, Table

    from ..hangs._pairs import Pair
    from ..hangs.calls._circles import Link
    from ..hangs.calls._compared import TwoGroups
    from ..hangs.turns._orders import Turned


def told_as_order_of_a_set(pair: Pair, loop: ast.For, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    """Return the loop whose order the hashes of texts decide, which differ from process to process."""
    (rank, ours), (other, theirs) = pair
    target, through = ast.unparse(loop.target), ast.unparse(loop.iter)
    return Finding(
        f"{ours.operation} at {short(ours.site)} is called in the order of a set, `for {target} in {through}` at line "
        f"{loop.lineno}: rank {rank} is at another {target} than rank {other}",
        (
            Evidence(
                _part(ours, theirs), "the same part on all ranks", f"rank {rank}, number {ours.number} of its group"
            ),
            Evidence(_part(theirs, ours), "", f"rank {other}, number {theirs.number} of its group"),
            Evidence("texts have another hash in each process", "one order on all ranks", "Python, PYTHONHASHSEED"),
            *proof,
        ),
        Fix(
            "go through it in an order that all ranks have",
            diff=f"-for {target} in {through}:\n+for {target} in sorted({through}):",
        ),
        place(ours.site),
        table=positions,
    )


def _part(call: Communication, other: Communication) -> str:
    """Return what tells a call from that of another rank: its tensors, or its group."""
    return call.shapes if call.group == other.group else f"in group {call.group}"


def told_as_turned_branches(found: Turned, event: Stalled) -> Finding:
    one, other = found.one, found.other
    return Finding(
        f"rank {one.rank} calls {one.operation} at {short(one.site)} where rank {other.rank} calls {other.operation} "
        f"at {short(other.site)}: the two branches of `if {found.test}` make the same calls in another order, so that "
        "each waits for the other's second one",
        (
            Evidence(f"line {found.at.line}", "one order on all ranks", f"rank {one.rank}, {found.at}"),
            Evidence(f"line {found.theirs.line}", "", f"rank {other.rank}, {found.theirs}"),
            *seen(event),
        ),
        Fix(
            "let all ranks make these calls in one order: take them out of the branches, or sort each branch alike",
            command="TORCH_DISTRIBUTED_DEBUG=DETAIL ddpdoctor run -- torchrun ...",
        ),
        place(found.at, rank=one.rank),
        table=table(event),
    )


def told_as_two_groups(found: TwoGroups, event: Stalled) -> Finding:
    """Return which ranks wait for each other, each in the group that the other one has not come to."""
    one, call, other, theirs = found
    return Finding(
        f"rank {one.rank} waits in {call.operation} at {short(call.site)}, in one process group, rank {other.rank} in "
        f"{theirs.operation} at {short(theirs.site)}, in another one: each for the other, which has not come there",
        (
            Evidence(f"{call.operation}, number {call.number} of group {call.group}", "", f"rank {one.rank}"),
            Evidence(
                f"{theirs.operation}, number {theirs.number} of group {theirs.group}",
                "the groups in one order on all ranks",
                f"rank {other.rank}",
            ),
            *seen(event),
        ),
        Fix(
            "call the collectives of several groups in one order on all ranks, outside of the branches",
            diff="+dist.all_reduce(loss, group=first)\n+dist.all_reduce(count, group=second)\n"
            "-if rank == 0: ...   # first, then second\n-else: ...           # second, then first",
        ),
        place(call.site, rank=one.rank),
        table=table(event),
    )


def told_as_circle(links: tuple[Link, ...], event: Stalled) -> Finding:
    """Return which rank waits for which, each in a group that the other one comes to later."""
    first = links[0]
    around = "; ".join(
        f"rank {each.rank} in the group of {', '.join(map(str, each.members[:8]))}, for rank {each.awaited}"
        for each in few(links, lambda each: each.members)
    )
    return Finding(
        f"the ranks wait for each other in a circle, in {first.call.operation} at {short(first.call.site)}: {around}",
        (
            *(
                Evidence(
                    f"{each.call.operation}, number {each.call.number} of group {each.call.group}",
                    "the groups in one order on all ranks",
                    f"rank {each.rank}",
                )
                for each in links
            ),
            *seen(event),
        ),
        Fix(
            "let each rank go through its groups in one order that all ranks have, that of their making, say",
            diff="-for ranks in own_groups:\n+for ranks in sorted(own_groups):   # tuples of ranks\n"
            "     dist.all_reduce(tensor, group=groups[ranks])",
        ),
        place(first.call.site, rank=first.rank),
        table=table(event),
    )


def told_as_groups_in_other_orders(pair: Pair, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    (rank, ours), (other, theirs) = pair
    return Finding(
        f"the ranks make their groups in other orders: the new_group number {ours.number} is of {ours.shapes} on rank "
        f"{rank}, at {short(ours.site)}, and of {theirs.shapes} on rank {other}, at {short(theirs.site)}",
        (
            Evidence(f"new_group({ours.shapes})", "one order, on all ranks of the job", f"rank {rank}"),
            Evidence(f"new_group({theirs.shapes})", "", f"rank {other}"),
            *proof,
        ),
        Fix(
            "let all ranks make all groups in one order, those that they are not in among them",
            diff="+for ranks in sorted(layouts):   # the same list on all ranks\n"
            "+    groups[tuple(ranks)] = dist.new_group(ranks)",
        ),
        place(ours.site),
        table=positions,
    )
