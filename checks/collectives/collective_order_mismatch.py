"""The ranks call different collectives, or the same ones in another order.

With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares the operation of all ranks before it starts: "Detected mismatch
between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(... OpType=ALLGATHER ...), but Rank
1 is running collective: ... OpType=REDUCE". Without it the same mistake is a hang or garbage. torch before 2.1 prints
one side only ("is running inconsistent collective"); the other ranks' logs have the rest.

How to be sure: the line of the traceback on each of the two ranks: they are the two places to compare.

How to mend it: no collective in a branch that one rank takes alone; the same order on all ranks, also of new_group
and of groups used in turn.

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupWrapper.cpp; torch.distributed documentation, "Debugging".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, Severity
from ddpdoctor.check import sign, watch
from ddpdoctor.explain.records import Record
from ddpdoctor.watch.events import Stalled, place
from ddpdoctor.watch.training import Training
from ddpdoctor.watch.verdict import Kind as Hang
from ddpdoctor.watch.verdict import first_mismatch, seen, short, table
from ddpdoctor.watch.verdict import kind as hang

from ._flight import OTHER_OPERATION, proofs
from ._mismatch import DETECTED, Kind, kind, sides
from ._watchdog import AFTERMATH

CARD = Card("DDP717", Severity.ERROR)
FIX = Fix(
    "compare the two ranks' lines, and have every rank call the same collectives in the same order",
    command="TORCH_DISTRIBUTED_DEBUG=DETAIL ddpdoctor run -- torchrun ...",
)


@sign(DETECTED, explains=AFTERMATH)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The operations or their numbers differ."""
    if kind(record) is not Kind.ORDER:
        return
    both = sides(record.text)
    one_sided = len(both) < 2  # noqa: PLR2004 - two sides
    yield Finding(
        "the ranks are in different collectives: " + ("; ".join(map(str, both)) or "see both ranks' lines"),
        (record.proof(match, "one operation on all ranks"),),
        FIX,
        record.place,
        doubt=Doubt(
            ("another operation or order on the other ranks", "the same operation with another shape"),
            "grep 'is running' LOGS_OF_ALL_RANKS   # each rank prints its own side",
        )
        if one_sided
        else None,
    )


@sign(r"NCCL WARN Mismatched collective detected", explains=AFTERMATH)
def in_logs_of_nccl(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL 2.4 to 2.6 say it themselves."""
    yield Finding(
        "the ranks are in different collectives, says NCCL",
        (record.proof(match, "one operation on all ranks"),),
        FIX,
        record.place,
    )


@sign(OTHER_OPERATION, explains=AFTERMATH)
def in_dumps(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The flight recorders of two ranks have different operations under one number."""
    yield Finding(match["said"], proofs(record, "one operation on all ranks"), FIX, record.place)


@watch(Stalled)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Name the first collectives of two ranks that do not match."""
    pair = first_mismatch(event) if hang(event, training) is Hang.ORDER else None
    if pair:
        (rank, ours), (other, theirs) = pair
        yield Finding(
            f"rank {rank} calls {ours.operation} at {short(ours.site)} where rank {other} calls {theirs.operation} at "
            f"{short(theirs.site)}",
            (
                Evidence(ours.operation, "one operation", f"rank {rank}, number {ours.number} of its group"),
                Evidence(theirs.operation, "", f"rank {other}, number {theirs.number} of its group"),
                *seen(event),
            ),
            FIX,
            place(ours.site),
            table=table(event),
        )
