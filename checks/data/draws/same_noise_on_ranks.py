"""All ranks draw the same noise for their batches.

## What happens

All ranks have seeded torch, numpy or Python's `random` with the same number, and each step draws noise, time steps,
masks or latent vectors for its batch. The samples differ, the noise does not: N ranks try N times fewer of its values
than a step could, and an average over them says less. A diffusion model trains on as many time steps as one rank has.
With dropout it is the same, and never matters.

## How to be sure

Print `torch.rand(1)` on each rank in a step. ddpdoctor (`ddpdoctor run`) compares the states of the generators of
torch, numpy and Python between the ranks when the model is given its first three batches, and counts how many numbers
were drawn since the batch came: at least one for each sample; or the source of the wrapped model draws as many in its
forward, `torch.randn_like(mean)` say. It is a note. What ranks must draw alike (a size for all
images, a layer that is left out) takes fewer.

Numbers that a data set draws as it is asked for samples count as well, from the process's generators or from one that
it holds (`random.Random(seed)`), where a DistributedSampler says which samples, or a loader of Accelerate's, as the
Trainer has them, gives each rank its share.

The same of a sampler that the script goes through itself, without a loader; and of generators that an iterable data set
holds, an object of the script (an environment, what draws actions), or a variable. Of these the source must draw
nothing that ranks can take their parts of, as orders and whole numbers that choose samples; of a variable, noise for
samples, or numbers of each sample, as negatives, alone. What puts batches together counts as the data set does.

## How to mend it

Seed with the rank, once the model is wrapped: `torch.manual_seed(seed + dist.get_rank())`. The sampler has a seed of
its own.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Reproducibility".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Drew,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    Severity,
    StepFingerprinted,
    StreamSeen,
    Training,
    place,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from ..._ledgers.ledger import sheets
from .._lines import process_seeded_alike
from .._streams import drawing_alike, draws_noise_alone, first_batches, seeded_at
from ._as_read import as_read
from ._held import draws_for_samples, draws_what_ranks_try, seeded_at as held_seeded_at
from ._in_forward import noise_in_forward
from ._of_variables import draws_noise_for_samples
from ._states import GENERATORS, TORCH, alike, apart, shared_out, told_by

if TYPE_CHECKING:
    from ..._ledgers.sheets import Sheet

AILMENT = Ailment("DDP628", Severity.NOTE)
LAST = 3  # batch
SURE = 10  # step
SAME = 1e-5
STREAMED = 5  # batches of an iterable data set


@watch(Drew)
def while_training(event: Drew, training: Training) -> Iterator[Finding]:
    """Compare the states of all ranks at the first batches of a loader."""
    if event.number or event.batch != LAST or not shares_gradients(event.pid, training):
        return
    batches = [training.complete(Drew, loader=event.loader, number=0, batch=batch) for batch in range(1, LAST + 1)]
    first, *others = batches
    batches = batches if first else others  # Accelerate's loaders are one ahead of the model
    if not all(batches):
        return
    name = next((each for each in GENERATORS if all(alike(ranks, each) for ranks in batches)), None)
    within = None if name else noise_in_forward(batches, event, training)
    if name is None and within is None:
        yield from as_read(event, others, training)
        return
    started = training.by_rank(EpochStarted, loader=event.loader, number=0)
    samplers = [each.sampler for each in started.values()]
    if not all(each is not None and (each.splits or len(started) in {each.replicas, each.shares}) for each in samplers):
        return  # whether their samples differ is not sure
    if not shared_out(started) or training.of(OrderSeen, joins=True):
        return
    last, name = batches[-1], name or TORCH
    drawn = min(told_by(each, name)[1] for ranks in batches for each in ranks.values())
    how = f"the model draws in its forward, {within}" if within else f"{drawn} numbers or more drawn for each batch of "
    yield Finding(
        f"{len(last)} ranks draw the same random numbers for their batches: {name} is in one state on all",
        tuple(
            Evidence(f"state {told_by(each, name)[0]} at batch {LAST}, {how}{'' if within else each.rows}",
                     "another on each rank", f"rank {rank}, the loop of {each.site}")
            for rank, each in last.items()
        )[:8],
        apart(name, training),
        place(process_seeded_alike(event.site) or event.site),
    )  # fmt: skip


@watch(StreamSeen)
def of_a_stream(event: StreamSeen, training: Training) -> Iterator[Finding]:
    """Compare the states of generators that iterable data sets have of their own."""
    ranks = first_batches(event, training) if event.batch == STREAMED else {}
    rows = [*zip(*ranks.values(), strict=True)]
    name = drawing_alike(rows)
    differ = all(len({each.pieces for each in row}) > 1 for row in rows)
    if not name or not differ or event.site is None or not draws_noise_alone(event.site, name):
        return
    yield Finding(
        f"{len(ranks)} ranks draw the same random numbers for their samples: {name} is seeded alike on all",
        tuple(
            Evidence(f"seed {seed or 'not known'}, state {state} after batch {event.batch}", "another on each rank",
                     f"rank {rank}, {event.site.function}")
            for rank, batches in ranks.items()
            for own, state, seed in batches[-1].drawers
            if own == name
        )[:8],
        Fix(
            "seed with the rank as well",
            diff="-noise = torch.Generator().manual_seed(seed)\n"
            "+noise = torch.Generator().manual_seed(seed + 1000 * rank)",
        ),
        place(seeded_at(event.site, name) or event.site),
    )  # fmt: skip


@watch(StepFingerprinted)
def of_an_object(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare the states of generators that objects of the script hold: an environment, what draws actions."""
    if event.number != SURE or not shares_gradients(event.pid, training):
        return
    loaded = bool(training.of(EpochStarted, training=True))
    steps = [each for each in sheets(event, training) if all(one.held_generators for one in each.ranks.values())]
    found = [{one.path: one for one in next(iter(each.ranks.values())).held_generators} for each in steps]
    if len(found) < 2 or any(each.is_parallel_otherwise for each in steps):  # noqa: PLR2004 - has it moved
        return
    if all(line.computes_alike(SAME) for each in steps for line in each.lines if line.known):
        return  # the samples are the same
    for path, held in found[-1].items():
        alike = all(_in_one_state(path, each) for each in steps)
        moved = len({each[path].state for each in found if path in each}) > 1
        tries = draws_noise_for_samples(held) or (draws_for_samples if loaded else draws_what_ranks_try)(held)
        if not alike or not moved or not tries:
            continue
        name = "self.rng" if held.kind else path
        yield Finding(
            f"{training.world_size} ranks draw the same random numbers: {path}{held.kind and f' of {held.kind}'} is in "
            "one state on all",
            tuple(
                Evidence(f"seed {held.seed or 'not known'}, state {one[path].state} at step {each.number}",
                         "another on each rank", "all ranks")
                for one, each in zip(found, steps, strict=True)
            ),
            Fix(
                "seed with the rank as well",
                diff=f"-{name} = np.random.default_rng(seed)\n+{name} = np.random.default_rng(seed + dist.get_rank())",
            ),
            place((event.site and held_seeded_at(held, event.site)) or event.site),
        )  # fmt: skip
        return


def _in_one_state(path: str, step: Sheet) -> bool:
    states = [{each.path: each.state for each in one.held_generators}.get(path) for one in step.ranks.values()]
    return len(set(states)) == 1 and None not in states
