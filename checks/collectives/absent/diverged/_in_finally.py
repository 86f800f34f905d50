"""A rank that waits in a ``finally``, while another one is in what that is for: by an exception, or by its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, place

from ...hangs._told import seen, short, table
from ...hangs.source._exits import loop_left_by
from ...hangs.source._handlers import in_finally

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled, Training


def told_in_finally(event: Stalled, training: Training) -> Finding | None:
    """Return who is where; an exception alone is left where the loop that was left runs as often on all ranks."""
    found = in_finally(event)
    if found is None:
        return None
    rank, other = found.rank, found.other
    left = loop_left_by(event, training)
    alike = left is not None and left.rank == rank.rank and left.loop.alike
    catches = f", which the {found.caught[0]} has caught," if found.caught else ""
    where = (
        f"rank {rank.rank} waits in {rank.operation} at {short(found.at)}, in the `finally` of what rank {other.rank}"
    )
    return Finding(
        f"{where} is in still, which waits in {other.operation} at {short(other.site)}"
        + (f": an exception{catches} has led rank {rank.rank} there" if alike else ""),
        (
            Evidence(
                f"in the `finally` of lines {found.handler.first} to {found.handler.last}",
                "no collective there",
                f"rank {rank.rank}, {short(found.at)}",
            ),
            *seen(event),
        ),
        Fix(
            "wait for no rank in a `finally`: then the error comes to the output, and the launcher ends the others",
            diff=f" finally:\n-    dist.{rank.operation}(...)\n     dist.destroy_process_group()",
        ),
        place(found.at, rank=rank.rank),
        table=table(event),
        ambiguity=None
        if alike
        else Ambiguity(
            (
                f"an exception{catches or ''} has led rank {rank.rank} there: "
                + ("the handler tells it" if found.caught else "its traceback is printed when the `finally` is over"),
                f"rank {rank.rank} has come to the end of it with fewer batches, or by a break or a return",
            ),
            "ddpdoctor run -- torchrun ...   # names the exception, and counts the batches of each rank",
        ),
    )
