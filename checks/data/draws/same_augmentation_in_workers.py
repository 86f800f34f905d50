"""All workers of a DataLoader draw the same random augmentations.

## What happens

Each worker gets a copy of the data set, and with it of a random generator that the data set holds
(`self.rng = numpy.random.default_rng(0)`), or that its transforms hold. torch seeds the global generators of torch, of
Python's random and of numpy anew in each worker, but knows nothing of that one. All workers draw the same numbers in
the same order, so that neighbouring batches are cropped and flipped alike, and a new epoch repeats them where workers
are started anew.

## How to be sure

Fetch the same sample several times in two workers. ddpdoctor starts two workers with the loader's own worker_init_fn,
and compares what they draw; only forked workers are tried.

In a running training (`ddpdoctor run`) no worker is disturbed: ddpdoctor reports a generator that the data set holds
and `__getitem__` draws from, or a transform of its, and that each forked worker has a copy of, without a
worker_init_fn.

## How to mend it

Draw from the global generators, or make the generator in the worker: in a worker_init_fn,
`torch.utils.data.get_worker_info().dataset.rng = numpy.random.default_rng(seed)`, where the seed is
`torch.initial_seed()`, which is another in each worker and epoch, and a number that depends on the rank.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Randomness in multi-process
data loading".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, OrderSeen, Severity, Training, place, probe, watch

from .._passes import rank_pass
from .._words import at

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP610", Severity.WARNING)


@probe
def in_two_workers(loader: LoaderExam) -> Iterator[Finding]:
    """Compare what two workers made of the same sample."""
    first = loader.built()[0]
    if not first.in_workers:
        raise NotRun("no map-style data set that two forked workers fetch from")
    one, other = first.in_workers
    if len(set(one)) == 1 or one[: len(other)] != other:
        return
    drawn = {rank.drawn for rank in loader.ranks}
    ranks = len(loader.ranks) > 1 and len(drawn) == 1 and all(len(set(each)) > 1 for each in drawn)
    yield Finding(
        f"the workers of {first.dataset} draw the same augmentations{', and so do all ranks' if ranks else ''}: "
        f"{len(other)} versions of sample 0 came out alike",
        tuple(
            Evidence(" ".join(each[:4]), "other versions in each worker", f"rank 0, worker {worker}, digests")
            for worker, each in enumerate((one, other))
        )
        + ((Evidence("the same two versions on each", "other versions on each rank", "all ranks"),) if ranks else ()),
        _mend(first.generators),
        at(loader),
    )


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Find a generator that the workers have copies of, and that the data set draws from; no worker is disturbed."""
    this = rank_pass(event, training)
    if this is None or not event.trained or this.data is None or not this.data.generators:
        return
    held = [path for paths, _ in this.data.generators for path in paths.split(" = ")]
    names, workers = ", ".join(f"self.{path}" for path in held), this.started.workers
    yield Finding(
        f"the {workers} workers of {this.started.dataset} draw the same random numbers: each has a copy of {names}",
        (
            Evidence(
                f"samples are made with {names}, made before the workers were started",
                "a generator that is made, or seeded, in the worker",
                str(this.data.reader or event.site),
            ),
            Evidence(f"num_workers={workers}, worker_init_fn=None", "a worker_init_fn", f"the loop of {event.site}"),
        ),
        _mend(this.data.generators),
        place(this.data.reader or event.site),
    )


def _mend(generators: tuple[tuple[str, str], ...]) -> Fix:
    """Return a worker_init_fn that gives each worker other generators, where the data set holds them."""
    lines = [
        f"+    {' = '.join(f'dataset.{path}' for path in paths.split(' = '))} = {maker}\n"
        for paths, maker in generators
    ]
    return Fix(
        "give each worker generators of its own, by a seed that is another for each epoch, worker and rank",
        diff="+def new_generators(worker):\n"
        "+    dataset = torch.utils.data.get_worker_info().dataset\n"
        "+    seed = (torch.initial_seed() + 1000 * int(os.environ['RANK'])) % 2**32\n"
        + ("".join(lines) or "+    dataset.rng = numpy.random.default_rng(seed)\n")
        + "-DataLoader(dataset, num_workers=...)\n"
        "+DataLoader(dataset, num_workers=..., worker_init_fn=new_generators)",
    )
