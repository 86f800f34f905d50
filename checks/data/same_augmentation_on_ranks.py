"""All ranks draw the same random augmentations.

With the same seed on each rank, the n-th sample of rank 0 and the n-th of rank 1 are cropped and flipped alike. The
samples differ, so training goes on well; the augmentation of a global batch is less varied than it could be.

To be sure: fetch one sample on two ranks and compare.

A note: many reference trainings do so. Reported when samples were really drawn alike on all ranks while two draws on
one rank differ. Source: PyTorch documentation, "Reproducibility"; DDP needs no equal seeds, it sends rank 0's weights
to all. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP611", Severity.NOTE)


@probe
def by_drawing(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the draws of the ranks."""
    drawn = [[(first, second) for _, first, second in rank.samples] for rank in loader.indexed()]
    random = [number for number, (first, second) in enumerate(drawn[0]) if first != second]
    if not random or len(drawn) == 1:
        raise NotRun("no random augmentation, or one rank")
    if loader.same_data is not False and all(each == drawn[0] for each in drawn):
        yield Finding(
            f"all {len(drawn)} ranks draw the same random augmentations",
            (Evidence(f"{len(random)} samples drawn twice: the same results on all ranks", "others on each", "ranks"),),
            Fix("let the seed depend on the rank", diff="- torch.manual_seed(seed)\n+ torch.manual_seed(seed + rank)"),
            Place(file=loader.target.rpartition(":")[0]),
        )
