"""All ranks wait to receive, and nobody sends.

## What happens

`recv` blocks until the message is there, and `send` can block until the other rank takes it. Two ranks that both
receive first wait for each other without end. A ring in which every rank receives first does the same with any number
of ranks.

## How to be sure

`ddpdoctor run` shows each rank in `recv` (or `send`) with the peer that it names, and the line.

## How to mend it

Best first: post both sides at once with `dist.batch_isend_irecv`, where the order does not matter; or let half of the
ranks (the even ones, say) send first.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU over gloo. Source: PyTorch documentation, "Distributed
communication package", point-to-point communication.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Position, Severity, Stalled, place

from ._hangs import Hang, on_hang, seen, short, table

AILMENT = Ailment("DDP741", Severity.ERROR)


@on_hang(Hang.RECEIVES)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield who waits for a message, and from whom."""
    told = "; ".join(_waiting(each) for each in event.ranks[:4])
    yield Finding(
        f"no message is on its way: {told}",
        seen(event),
        Fix(
            "let one side send first, or post both at once",
            diff="-dist.recv(incoming, peer)\n-dist.send(outgoing, peer)\n"
            "+for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, outgoing, peer),\n"
            "+                                   dist.P2POp(dist.irecv, incoming, peer)]):\n+    work.wait()",
        ),
        place(event.ranks[0].site, rank=event.ranks[0].rank),
        table=table(event),
    )


def _waiting(position: Position) -> str:
    peer = position.recent[-1].shapes.partition("]")[2] if position.recent else ""
    return f"rank {position.rank} waits in {position.operation}{peer} at {short(position.site)}"
