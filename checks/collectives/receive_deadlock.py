"""All ranks wait to receive, and nobody sends.

`recv` blocks until the message is there, and `send` may block until somebody takes it. Two ranks that both receive
first wait for each other for ever; a ring in which everybody receives first does the same with any number of ranks.

How to be sure: `ddpdoctor run` shows each rank in `recv` (or `send`) with the peer that it names, and the line.

How to mend it: let half of the ranks send first (the even ones, say), or post both sides at once with
`dist.batch_isend_irecv`, which has no order.

Holds for torch 2.2 and later; seen with torch 2.13 CPU over gloo. Source: PyTorch documentation, "Distributed
communication package", point-to-point communication.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Finding, Fix, Severity
from ddpdoctor.check import watch
from ddpdoctor.watch.events import Stalled, place
from ddpdoctor.watch.training import Training
from ddpdoctor.watch.verdict import Kind, kind, seen, short, table

CARD = Card("DDP741", Severity.ERROR)


@watch(Stalled)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Say who waits for a message, and from whom."""
    if kind(event, training) is not Kind.RECEIVES:
        return
    told = "; ".join(
        f"rank {each.rank} waits in {each.operation}{each.recent[-1].shapes.partition(']')[2]} at {short(each.site)}"
        for each in event.ranks[:4]
    )
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
