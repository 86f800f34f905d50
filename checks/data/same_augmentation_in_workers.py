"""All workers of a DataLoader draw the same random augmentations.

A random generator that the data set makes in __init__ is copied into each worker, and so is its state: worker 0 and
worker 1 draw the same crops, flips and noise, in every epoch anew. The augmentation is less varied than it looks.

The global generators are not concerned: torch seeds `random`, `torch` and (since 1.9) `numpy.random` differently in
each worker.

To be sure: fetch one sample in two workers and compare.

Reported when one sample was really drawn alike by two workers while two draws in one worker differ. Source: PyTorch
documentation, "Randomness in multi-process data loading". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP610", Severity.WARNING)


@probe
def by_drawing(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the draws of two workers."""
    draws = loader.first.in_workers
    if draws is None:
        raise NotRun("no random augmentation, or fewer than two workers")
    one, other = draws
    if one == other and len(set(one)) == len(one) > 1:
        yield Finding(
            "two workers draw the same random augmentations",
            (
                Evidence(
                    "one sample drawn twice by worker 0 and by worker 1: the same two results", "four results", "rank 0"
                ),
            ),
            Fix(
                "make the generator in the worker",
                diff="- self.rng = np.random.default_rng(0)  # in __init__, copied into each worker\n"
                "+ rng = np.random.default_rng(torch.initial_seed() % 2**32)  # at first use, in the worker",
            ),
            Place(file=loader.target.rpartition(":")[0]),
        )
