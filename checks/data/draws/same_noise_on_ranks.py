"""All ranks draw the same noise for their batches.

## What happens

All ranks have seeded torch, numpy or Python's `random` with the same number, and each step draws noise, time steps,
masks or latent vectors for its batch. The samples differ, the noise does not: N ranks try N times fewer of its values
than a step could, and an average over them says less. A diffusion model trains on as many time steps as one rank has.
With dropout it is the same, and never matters.

## How to be sure

Print `torch.rand(1)` on each rank in a step. ddpdoctor (`ddpdoctor run`) compares the states of the generators of
torch, numpy and Python between the ranks when the model is given its first three batches, and counts how many numbers
were drawn since the batch came: at least one for each sample. It is a note. What ranks must draw alike (a size for all
images, a layer that is left out) takes fewer.

## How to mend it

Seed with the rank, once the model is wrapped: `torch.manual_seed(seed + dist.get_rank())`. The sampler has a seed of
its own.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Reproducibility".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Drew,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    Severity,
    Training,
    place,
    watch,
)

from ..._evaluations import shares_gradients
from .._lines import process_seeded_alike

AILMENT = Ailment("DDP628", Severity.NOTE)
LAST = 3  # batch
FEWEST = 4  # rows
GENERATORS = {"torch": "torch.manual_seed", "numpy.random": "numpy.random.seed", "Python's random": "random.seed"}


@watch(Drew)
def while_training(event: Drew, training: Training) -> Iterator[Finding]:
    """Compare the states of all ranks at the first batches of a loader."""
    if event.number or event.batch != LAST or not shares_gradients(event.pid, training):
        return
    batches = [training.complete(Drew, loader=event.loader, number=0, batch=batch) for batch in range(1, LAST + 1)]
    name = next((each for each in GENERATORS if all(_alike(ranks, each) for ranks in batches)), None)
    if not all(batches):
        return
    if name is None:
        yield from _in_the_data_set(event, batches[1:], training)
        return
    started = training.by_rank(EpochStarted, loader=event.loader, number=0)
    samplers = [each.sampler for each in started.values()]
    if not all(each is not None and (each.splits or each.replicas == len(started)) for each in samplers):
        return  # whether their samples differ is not sure
    if any(each.owning_library or each.subgroups for each in started.values()) or training.of(OrderSeen, joins=True):
        return
    last = batches[-1]
    drawn = min(_of(each, name)[1] for ranks in batches for each in ranks.values())
    yield Finding(
        f"{len(last)} ranks draw the same random numbers for their batches: {name} is in one state on all",
        tuple(
            Evidence(f"state {_of(each, name)[0]} at batch {LAST}, {drawn} numbers or more drawn for each batch of "
                     f"{each.rows}",
                     "another on each rank", f"rank {rank}, the loop of {each.site}")
            for rank, each in last.items()
        )[:8],
        Fix(
            "seed with the rank, once the model is wrapped",
            diff=f" model = DistributedDataParallel(model)\n+{GENERATORS[name]}(seed + dist.get_rank())",
        ),
        place(process_seeded_alike(event.site) or event.site),
    )  # fmt: skip


def _in_the_data_set(event: Drew, batches: list[dict[int, Drew]], training: Training) -> Iterator[Finding]:
    """Look for numbers that the data set draws as it is asked for samples: those before the first batch are an order's.

    A sampler that draws index by index does so alike on all ranks, and torch's own has a generator of its own.
    """
    name = next((each for each in GENERATORS if all(_fetched_alike(ranks, each) for ranks in batches)), None)
    started = training.by_rank(EpochStarted, loader=event.loader, number=0)
    kinds = {each.sampler.kind if each.sampler is not None else "" for each in started.values()}
    if name is None or kinds != {"DistributedSampler"} or any(each.owning_library for each in started.values()):
        return
    if any(each.subgroups or each.sampler.replicas != len(started) for each in started.values() if each.sampler):
        return
    dataset = next(each.dataset for each in started.values())
    told = {rank: next(each for each in drew.fetched if each[0] == name) for rank, drew in batches[-1].items()}
    yield Finding(
        f"{len(told)} ranks draw the same random numbers for their samples: {name} is in one state on all as {dataset} "
        "is read",
        tuple(
            Evidence(f"state {state} after batch {LAST}, {drawn} numbers or more drawn for it", "another on each rank",
                     f"rank {rank}, the loop of {event.site}")
            for rank, (_, state, drawn) in told.items()
        )[:8],
        Fix(
            "seed with the rank, once the model is wrapped",
            diff=f" model = DistributedDataParallel(model)\n+{GENERATORS[name]}(seed + dist.get_rank())",
        ),
        place(process_seeded_alike(event.site) or event.site),
    )  # fmt: skip


def _fetched_alike(ranks: dict[int, Drew], name: str) -> bool:
    told = [next((each for each in drew.fetched if each[0] == name), None) for drew in ranks.values()]
    enough = all(each is not None and each[2] >= FEWEST for each in told)
    return enough and len({each[1] for each in told if each is not None}) == 1


def _alike(ranks: dict[int, Drew], name: str) -> bool:
    enough = all(_of(each, name)[1] >= max(each.rows, FEWEST) for each in ranks.values())
    return enough and len({_of(each, name)[0] for each in ranks.values()}) == 1


def _of(event: Drew, name: str) -> tuple[str, int]:
    """Return the state of a generator, and how many numbers were drawn from it."""
    told = {library: (state, drawn) for library, state, drawn in event.others}
    return (event.state, event.drawn) if name == "torch" else told.get(name, ("", 0))
