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

from ddpdoctor import Card, Doubt, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Record

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
    if kind(record.text) is not Kind.ORDER:
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
