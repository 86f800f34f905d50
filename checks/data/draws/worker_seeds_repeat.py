"""worker_init_fn seeds each worker by its number alone: each epoch, and each rank, draws the same.

## What happens

torch seeds the generators of a worker with a number that differs from epoch to epoch. A worker_init_fn that seeds them
again with the worker's number (`numpy.random.seed(worker_id)`, or a constant more) undoes that: workers are started in
each epoch, and draw the same crops, flips and noise as in the one before. The workers of all ranks draw alike as well.

## How to be sure

Print what `__getitem__` draws in two epochs. ddpdoctor (`check --loader`, `run`) reads the code of the function
that the loader was given: it seeds, and says nothing but the worker's number and numbers that are the same on all
ranks; and `__getitem__` draws, or has a transform. Where the workers live on (`persistent_workers=True`)
only the ranks draw alike: then it is a note.

## How to mend it

    def seed_worker(worker_id):
        seed = torch.initial_seed() % 2**32
        numpy.random.seed(seed)
        random.seed(seed)

In torch 2.2 and later worker_init_fn can be left out: torch seeds numpy and Python's random as well.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Reproducibility", DataLoader;
torch/utils/data/_utils/worker.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, OrderSeen, Place, Severity, Training, probe, watch

from .._passes import same_pass

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP619", Severity.WARNING)


@probe
def of_the_named_loader(loader: LoaderExam) -> Iterator[Finding]:
    """Read the function that the loader of each rank was given."""
    ranks = loader.built()
    seeds = {rank.seeded_by for rank in ranks}
    found = seeds.pop() if len(seeds) == 1 else None
    if found is not None:
        yield _finding(found, ranks[0].workers, ranks[0].persistent, "the loader")


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare what the loaders of all ranks seed their workers by."""
    ranks = same_pass(event, training)
    seeds = {each.data.seeded_by if each.data else None for each in ranks.values()}
    found = seeds.pop() if len(seeds) == 1 else None
    if found:
        started = next(iter(ranks.values())).started
        yield _finding(found, started.workers, started.persistent, f"the loop of {event.site}")


def _finding(found: tuple[str, str, int, str], workers: int, persistent: bool, where: str) -> Finding:  # noqa: FBT001
    name, file, line, _ = found
    return Finding(
        f"{name} seeds each worker by its number alone: "
        + ("all ranks draw the same" if persistent else "each epoch draws the same, and each rank"),
        (
            Evidence("seeds by the worker's number alone", "torch.initial_seed(), which holds rank and epoch",
                     f"{file}:{line}"),
            Evidence(f"num_workers={workers}, persistent_workers={persistent}", "", where),
        ),
        Fix(
            "take the seed that torch has given the worker",
            diff="-    numpy.random.seed(worker_id)\n+    numpy.random.seed(torch.initial_seed() % 2**32)",
        ),
        Place(file=file, line=line),
        severity=Severity.NOTE if persistent else None,
    )  # fmt: skip
