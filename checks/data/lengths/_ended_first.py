"""A rank that had fewer batches than the others, and so came to the end of its script first."""

from __future__ import annotations

from ddpdoctor.check import LIGHTNING, RAY, Evidence, Finding, Fix, Framework, PeerLost, place

from ...collectives.hangs._told import short
from .._words import SHOWN, counted

TOGETHER = Fix(
    "give every rank the same number of batches, and leave the loop on all ranks together",
    diff="+from torch.distributed.algorithms import Join\n+with Join([model]):\n     for batch in loader:",
)


IN_TRAINER = Fix(
    "give every rank the same number of batches, or have the Trainer end each epoch after as many as the fewest",
    diff="+trainer = Trainer(limit_train_batches=BATCHES, ...)   # the fewest that a rank has",
)
PREPARED = Fix(
    "let Ray Train share the rows out: it gives every worker the same number of batches",
    diff="-loader = DataLoader(part, batch_size=batch_size)   # the rows of this worker\n"
    "+loader = ray.train.torch.prepare_data_loader(DataLoader(dataset, batch_size=batch_size))",
)


def together(framework: Framework | None) -> Fix:
    """Return how all ranks come to the end of a loop at once, in the words of the framework that has the loop."""
    return IN_TRAINER if framework is LIGHTNING else PREPARED if framework is RAY else TOGETHER


def ended_first(event: PeerLost, done: int, counts: dict[int, int], framework: Framework | None) -> Finding:
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
        together(framework),
        place(lost.site, rank=lost.rank),
    )
