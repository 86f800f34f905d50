"""A message that nobody takes, or sends: one rank is in it, and the others wait in collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Fix, place

from ...hangs._messages import unanswered
from ...hangs._told import seen, short, table
from ...hangs.reasons._untaken import untaken
from ._rounds import COUNTED

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled

BESIDE = Fix(
    "let the other side of the message be called before that collective, or leave the message out on both",
    diff="+if rank == 0:\n+    dist.send(x, dst=1)\n if rank == 1:\n     dist.recv(x, src=0)\n dist.barrier()",
)


def told_untaken(event: Stalled) -> Finding | None:
    """Return how many messages a rank has sent, and how many the other one has received, which has gone on."""
    found = untaken(event.ranks)
    if found is None:
        return None
    sends, other = found.sends, found.other
    return Finding(
        f"rank {sends.rank} waits at {short(sends.site)} for rank {other.rank} to take message {found.sent}: that has "
        f"received {found.taken}{f' at {short(found.last)}' if found.last else ''}, and waits in {other.operation} at "
        f"{short(other.site)}",
        (
            Evidence(f"{found.sent} sends to rank {other.rank}", f"{found.taken}", f"rank {sends.rank}"),
            Evidence(f"{found.taken} receives from rank {sends.rank}", f"{found.sent}", f"rank {other.rank}"),
            *seen(event),
        ),
        COUNTED if found.taken else BESIDE,
        place(sends.site, rank=sends.rank),
        table=table(event),
    )


def told_unanswered(event: Stalled) -> Finding | None:
    """Return that one rank is in a message, and no other rank is, nor works: each waits in a collective."""
    waits = unanswered(event.ranks)
    if waits is None:
        return None
    others = [each for each in event.ranks if each is not waits]
    where = "; ".join(f"rank {each.rank} waits in {each.operation} at {short(each.site)}" for each in others[:3])
    side = "receives it" if waits.operation.endswith("send") else "sends one"
    return Finding(
        f"rank {waits.rank} waits in {waits.operation} at {short(waits.site)}, and no rank {side}: {where}",
        seen(event),
        BESIDE,
        place(waits.site, rank=waits.rank),
        table=table(event),
    )
