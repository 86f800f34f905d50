"""A rank that asks one rank for a message, while another one sends it a message that it does not take."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Fix, Position, Stalled, place

from ...hangs._messages import ALL, begun, named_peer
from ...hangs._told import seen, short, table

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Fix(
    "name the rank that really sends: what each rank sends to, another one has to receive from",
    diff="-dist.irecv(incoming, src=(rank + 1) % size)\n+dist.irecv(incoming, src=(rank - 1) % size)   # who sends",
)


def misdirected(event: Stalled) -> Finding | None:
    """Compare who was sent to with who was asked; all messages of all ranks are known, or nothing is said."""
    if any(len(each.recent) >= ALL for each in event.ranks):
        return None
    sent = Counter(_messages(event, "send"))
    asked = Counter((other, rank) for rank, other in _messages(event, "recv"))
    unsent, untaken = asked - sent, sent - asked
    for waits in event.ranks:
        call = begun(waits)
        told = named_peer(call) if call is not None and call.operation == "recv" else None
        others = [giver for giver, taker in untaken if taker == waits.rank]
        if told is None or (told[0], waits.rank) not in unsent or len(others) != 1 or others[0] == told[0]:
            continue
        return _told(event, waits, told[0], others[0], untaken[others[0], waits.rank])
    return None


def _messages(event: Stalled, operation: str) -> Iterator[tuple[int, int]]:
    """Yield each rank with the rank that its messages go to, or come from."""
    for each in event.ranks:
        for call in each.recent:
            if call.operation == operation and (peer := named_peer(call)) is not None:
                yield each.rank, peer[0]


def _told(event: Stalled, waits: Position, source: int, other: int, count: int) -> Finding:
    many = "a message that it does" if count == 1 else f"{count} messages that it does"
    return Finding(
        f"rank {waits.rank} waits at {short(waits.site)} for a message of rank {source}, which has sent none that it "
        f"has not taken, and rank {other} sends it {many} not take",
        (
            Evidence(f"receives from rank {source}", f"from rank {other}, which sends to it", f"rank {waits.rank}"),
            *seen(event),
        ),
        SOURCE,
        place(waits.site, rank=waits.rank),
        table=table(event),
    )
