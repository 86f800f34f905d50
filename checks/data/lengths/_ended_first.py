"""A rank that had fewer batches than the others, and so came to the end of its script first."""

from __future__ import annotations

from ddpdoctor.check import Evidence, Finding, Fix, PeerLost, place

from ...collectives.hangs._told import short
from .._words import SHOWN, counted

TOGETHER = Fix(
    "give every rank the same number of batches, and leave the loop on all ranks together",
    diff="+from torch.distributed.algorithms import Join\n+with Join([model]):\n     for batch in loader:",
)


def ended_first(event: PeerLost, done: int, counts: dict[int, int]) -> Finding:
    """Return how many batches it had, by the batches of each rank in one pass, and who was in the loop still."""
    lost, fewest = event.others[0], counts[done]
    return Finding(
        f"rank {done} had {counted(fewest, 'batch')} in a pass in which others had up to {max(counts.values())}, "
        f"and came to its end; rank {lost.rank} was in the loop still"
        + (f", at {short(lost.site)}" if lost.site else ""),
        (
            *(Evidence(counted(number, "batch"), "the same on all ranks", f"rank {r}") for r, number in counts.items()),
            Evidence(lost.said, "", f"rank {lost.rank}"),
        )[: SHOWN + 1],
        TOGETHER,
        place(lost.site, rank=lost.rank),
    )
