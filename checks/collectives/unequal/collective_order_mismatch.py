"""The ranks call different collectives, or the same ones in another order.

## What happens

With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares the operation of all ranks before it starts: "Detected mismatch
between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(... OpType=ALLGATHER ...), but Rank
1 is running collective: ... OpType=REDUCE". Without it the same mistake is a hang, or wrong numbers. torch before 2.1
prints one side only ("is running inconsistent collective"); the other ranks' logs have the rest.

## How to be sure

Compare the line of the traceback on each of the two ranks.
`TORCH_DISTRIBUTED_DEBUG=DETAIL ddpdoctor run -- torchrun ...` names the two collectives and their lines;
`ddpdoctor explain` finds the same in the dumps of the flight recorder of both ranks.

## How to mend it

Let every rank call the same collectives in the same order. Put no collective in a branch that one rank takes alone.
The order counts for `new_group`, too, and for groups that are used in turn. A loop over a set has another order in each
process where its elements are texts: `for name in sorted(names)`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupWrapper.cpp; torch.distributed documentation, "Debugging".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Ended,
    Evidence,
    Finding,
    Fix,
    Log,
    PeerLost,
    Place,
    Record,
    Severity,
    Stalled,
    Table,
    Training,
    lint,
    log_pattern,
    place,
    watch,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, seen, short, table
from ..hangs.calls._apart import mismatch
from ..hangs.calls._circles import circle
from ..hangs.calls._compared import NEW_GROUP, at_odds, first_mismatch, in_two_groups
from ..hangs.calls._once_more import returned_early
from ..hangs.turns._orders import groups_in_order_of_a_set, in_order_of_a_set, turned
from ..timeouts._flight import OTHER_OPERATION, proofs
from ..timeouts._watchdog import named
from ._groups_in_source import made_by_some_in
from ._made import made_by_some, not_made_by_all
from ._mismatch import Mismatch, both_sides, on_mismatch
from ._orders_told import (
    told_as_circle,
    told_as_groups_in_other_orders,
    told_as_order_of_a_set,
    told_as_turned_branches,
    told_as_two_groups,
)
from ._submitted import STALLED_WARNING, TENSORS, submit_others

if TYPE_CHECKING:
    from ddpdoctor.check import Script

    from ..hangs._pairs import Pair

AILMENT = Ailment("DDP717", Severity.ERROR)
LENGTHS = ("the list that it gives to broadcast_object_list has another length than the source's",)
FIX = Fix(
    "compare the two ranks' lines, and have every rank call the same collectives in the same order",
    command="TORCH_DISTRIBUTED_DEBUG=DETAIL ddpdoctor run -- torchrun ...",
)
COME_ALONG = Fix(
    "let each rank come to the collective, also one that has nothing to give: with zeros, and a count of none",
    diff="-if not samples:\n-    return None\n-total = torch.tensor([score(samples), 1.0])\n"
    "+total = torch.tensor([score(samples), 1.0] if samples else [0.0, 0.0])\n dist.all_reduce(total)",
)


@on_mismatch(Mismatch.ORDER)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The operations or their numbers differ."""
    both = both_sides(record, log)
    one_sided = len(both) < 2  # noqa: PLR2004 - two sides
    yield Finding(
        "the ranks are in different collectives: " + ("; ".join(map(str, both)) or "see both ranks' lines"),
        (record.proof(match, "one operation on all ranks"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            ("another operation or order on the other ranks", "the same operation with another shape"),
            "grep 'is running' LOGS_OF_ALL_RANKS   # each rank prints its own side",
        )
        if one_sided
        else None,
    )


@log_pattern(r"NCCL WARN Mismatched collective detected")
def in_logs_of_nccl(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL 2.4 to 2.6 say it themselves."""
    yield Finding(
        "the ranks are in different collectives, says NCCL",
        (record.proof(match, "one operation on all ranks"),),
        FIX,
        record.place,
    )


@log_pattern(
    r"NCCL WARN Your program may be hanging, this may be caused by a collective mismatch around rank (?P<rank>\d+)"
)
def around_a_rank(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL 2.9 and later have waited in vain for a rank's part of a collective."""
    yield Finding(
        f"rank {match['rank']} does not take part in the collective that another rank waits in, says NCCL",
        (record.proof(match, "one operation on all ranks"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (
                f"rank {match['rank']} calls another collective, or none: a branch that its rank or its data decides",
                f"rank {match['rank']} is gone, or still works",
            ),
            f"py-spy dump --pid PID   # of rank {match['rank']}",
        ),
    )


@log_pattern(
    r"(?:_tensor_to_object|broadcast_object_list|gather_object|synchronize_rng_state)\b[^\0]{0,3000}?"
    r"(?:Trying to create tensor with negative dimension -\d+|UnpicklingError: \w[^\n]*|EOFError: Ran out of input"
    r"|you tried to allocate \d{14,} bytes)"
)
def in_objects(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """What arrives in place of an object is no pickle: the bytes of another collective, or its length."""
    yield Finding(
        "this rank got other bytes in place of an object, or of its length: the ranks' calls do not match",
        (record.proof(match, "the same collectives in the same order on all ranks"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (
                *(LENGTHS if "in broadcast_object_list" in record.text else ()),
                "one rank takes another branch: a checkpoint that only it finds, a path with the time in its name",
                "the ranks run other versions of the script or of the library",
            ),
            FIX.command or "",
        ),
    )


@log_pattern(STALLED_WARNING, context=(TENSORS,))
def in_what_horovod_lists(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Each rank lacks tensors that another one has submitted: all are there, and not at one place."""
    if ranks := submit_others(record, log):
        yield Finding(
            f"{named(ranks[:8])} submit different tensors to Horovod, which waits for each of them in vain",
            (record.proof(match, "all ranks submit the same tensors"),),
            Fix(
                "let all ranks reduce and broadcast the same names: no branch by the rank, the same parameters trained",
                command="HOROVOD_LOG_LEVEL=debug horovodrun ... 2>&1 | grep -m5 submitted",
            ),
        )


@log_pattern(OTHER_OPERATION)
def in_dumps(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The flight recorders of two ranks have different operations under one number."""
    yield Finding(match["said"], proofs(record, "one operation on all ranks"), FIX, record.place)


@on_hang(Hang.ORDER)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield the name of the first collectives of two ranks that do not match."""
    if groups := in_two_groups(event):
        yield told_as_two_groups(groups, event)
    elif pair := groups_in_order_of_a_set(event) or first_mismatch(event.ranks):
        (_, ours), (_, theirs) = pair
        if ours.operation == theirs.operation == NEW_GROUP:
            yield told_as_groups_in_other_orders(pair, seen(event), table(event))
            return
        if loop := in_order_of_a_set(pair):
            yield told_as_order_of_a_set(pair, loop, seen(event), table(event))
            return
        yield _one_operation(pair, "", seen(event), table(event))
    elif both := at_odds(event):
        one, two = both
        yield Finding(
            f"rank {one.rank} calls {one.operation} at {short(one.site)} where rank {two.rank} calls {two.operation} "
            f"at {short(two.site)}",
            seen(event),
            FIX,
            place(one.site, rank=one.rank),
        )
    elif links := circle(event):
        yield told_as_circle(links, event)
    elif found := turned(event):
        yield told_as_turned_branches(found, event)


def _one_operation(pair: Pair, ended: str, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    """Return the two calls, and the `return` by which one rank has left the function of the other one's, if it did."""
    (rank, ours), (other, theirs) = pair
    early = returned_early(pair)
    why = f": rank {early.rank} has left {early.function}() before, by {early.way}" if early else ""
    return Finding(
        f"rank {rank} calls {ours.operation} at {short(ours.site)} where rank {other} calls {theirs.operation} at "
        f"{short(theirs.site)}{why}{ended}",
        (
            Evidence(ours.operation, "one operation", f"rank {rank}, number {ours.number} of its group"),
            Evidence(theirs.operation, "", f"rank {other}, number {theirs.number} of its group"),
            *proof,
        ),
        COME_ALONG if early else FIX,
        Place(file=early.way.file, line=early.way.line, rank=early.rank) if early else place(ours.site),
        table=positions,
    )


@on_loss(Loss.ORDER)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Yield the first collectives that do not match, where a rank is gone without a word."""
    pair = mismatch(event, training)
    assert pair is not None  # noqa: S101 - else it would be another loss
    (_, ours), (_, theirs) = pair
    lost = noticed(event)
    if ours.operation == theirs.operation == NEW_GROUP:
        yield told_as_groups_in_other_orders(pair, lost, None)
        return
    if loop := in_order_of_a_set(pair):
        yield told_as_order_of_a_set(pair, loop, lost, None)
        return
    yield _one_operation(pair, f"; {named(list(event.gone))} ended there without an exception", lost, None)


@watch(Ended)
def of_groups_that_some_ranks_made(event: Ended, training: Training) -> Iterator[Finding]:
    """Yield a group that some ranks made by new_group, and others did not, in a training that came to its end."""
    if event.status == 0 and (found := made_by_some(training)):
        yield not_made_by_all(found)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a group that only some ranks make: they wait for the others, or meet another group of theirs."""
    for call, test in made_by_some_in(script):
        group = script.code(call)
        yield Finding(
            f"{group} is called by some ranks alone: all ranks of the job make each group, in one order",
            (script.seen(call, "the same call on all ranks"), script.seen(test)),
            Fix(
                "make the group on all ranks, those that are not in it among them; only its members use it",
                diff=f"-if {script.code(test)}:\n-    group = {group}\n+group = {group}",
            ),
            script.place(call),
        )
