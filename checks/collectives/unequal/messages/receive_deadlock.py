"""All ranks wait to receive, and nobody sends.

## What happens

`recv` blocks until the message is there, and `send` can block until the other rank takes it. Two ranks that both
receive first wait for each other without end, and so do two of which one receives more messages in a row than the other
one has sent (a last micro-batch that one side leaves out). A ring in which every rank receives first does the same with
any number of ranks. A message goes to the rank and the tag that are named: with another tag, or to a rank that does not
exist (`dst=rank + 1` on the last rank), nobody takes it; over gloo torch 2.13 waits, or crashes the process.

## How to be sure

`ddpdoctor run` shows each rank in `recv` (or `send`) with the peer and the tag that it names, and the line.

## How to mend it

Best first: post both sides at once with `dist.batch_isend_irecv`, where the order does not matter; or let half of the
ranks (the even ones, say) send first.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU over gloo. Source: PyTorch documentation, "Distributed
communication package", point-to-point communication.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Severity,
    Stalled,
    place,
)

from ...hangs._hangs import on_hang
from ...hangs._kinds import Hang
from ...hangs._messages import (
    BY_HANDLE,
    unsent,
)
from ...hangs._told import seen, short, table
from ._deadlocks import BOTH_SIDES, deadlock, nobody, one_more, past, posted, unmatched
from ._messages import other_tag, passed_by
from ._misdirected import misdirected
from ._rounds import COUNTED, counted_apart
from ._unanswered import BESIDE, told_unanswered, told_untaken

AILMENT = Ailment("DDP741", Severity.ERROR)


@on_hang(Hang.RECEIVES)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield who waits for a message, and from whom; a rank that does not exist, and tags that differ, come first."""
    yield (
        nobody(event)
        or other_tag(event)
        or unmatched(event)
        or past(event)
        or passed_by(event)
        or one_more(event)
        or counted_apart(event)
        or misdirected(event)
        or deadlock(event)
    )


@on_hang(Hang.UNSENT)
def one_too_many(event: Stalled) -> Iterator[Finding]:
    """Yield how many messages were sent and how many are waited for."""
    found = unsent(event.ranks)
    if found is None:
        known = told_untaken(event) or told_unanswered(event)
        yield from (known,) if known is not None else posted(event)
        return
    waits, other = found.waits, found.other
    yield Finding(
        f"rank {waits.rank} waits at {short(waits.site)} for message {found.received + 1} of rank {other.rank}, which "
        f"has sent {found.sent} and waits in {other.operation} at {short(other.site)}",
        (
            Evidence(f"{found.received + 1} receives from rank {other.rank}", f"{found.sent}", f"rank {waits.rank}"),
            Evidence(f"{found.sent} sends to rank {waits.rank}", f"{found.received + 1}", f"rank {other.rank}"),
            *seen(event),
        ),
        COUNTED if found.sent else BOTH_SIDES if waits.operation.startswith(BY_HANDLE) else BESIDE,
        place(waits.site, rank=waits.rank),
        table=table(event),
    )
