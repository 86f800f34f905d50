"""The ranks of one tensor-parallel group are given different batches.

## What happens

`parallelize_module` splits each layer over the ranks of a group: together they compute one model, for one batch. A
`DistributedSampler` that counts all ranks, as for DDP, gives each of them another one. Every rank then adds up parts of
the outputs for different samples: the loss is that of a mixture, and nothing fails.

## How to be sure

ddpdoctor knows the mesh that layers were split over, and the indices that each rank's sampler drew. Here ranks of one
group drew different ones. It also looks at what the layers that are split by columns are given in their first three
forwards: all ranks of a group have to give the same. Where the first such layer of a forward is given the same and a
later one is not, random numbers of each rank's own (dropout, noise) came in between; where the first one is not, it is
the batch, or noise that was added to it.

## How to mend it

Split the data over the data-parallel ranks alone; within a tensor-parallel group all have the same share:

    mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
    sampler = DistributedSampler(data, num_replicas=mesh["dp"].size(), rank=mesh["dp"].get_local_rank())

Random numbers that the ranks of one group compute with have to be the same as well: seed them alike within the group,
by the number of the data-parallel rank, where they were seeded by the global rank.

Silent where a layer is told that each rank gives its own rows (`input_layouts=Shard(0)`).

## Versions and sources

Measured with torch 2.13, gloo, two ranks. Source: PyTorch tutorial, "Large Scale Transformer model training with Tensor
Parallel". Seen with torch 2.5 and later.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    ParametersHeld,
    Severity,
    TensorParallel,
    TensorParallelInput,
    Training,
    place,
    watch,
)

from ...model._words import listed
from ._tensor_inputs import first_apart

AILMENT = Ailment("DDP758", Severity.ERROR)
SHOWN = 8
TELLING = 4  # samples
ALIKE = Fix(
    "draw the same random numbers (dropout, noise) on all ranks of a tensor-parallel group",
    diff='-torch.manual_seed(seed + dist.get_rank())\n+torch.manual_seed(seed + mesh["dp"].get_local_rank())   '
    "# or torch.manual_seed(seed), without data parallelism",
)
ONE_BATCH = Fix(
    "give all ranks of a tensor-parallel group the same batch, and the same random numbers",
    diff='-torch.manual_seed(seed + dist.get_rank())\n+torch.manual_seed(seed + mesh["dp"].get_local_rank())   '
    "# or torch.manual_seed(seed), without data parallelism\n or, where one rank has the batch\n"
    '+dist.broadcast(batch, group_src=0, group=mesh["tp"].get_group())',
)
CAUSES = (
    "the ranks of the group draw or read other batches",
    "noise, or dropout, is drawn on each rank by itself before the first layer that is split",
)
PRINTS = (
    "print(torch.distributed.get_rank(), torch.initial_seed(), batch.double().sum())   # of each rank, in each step"
)


@watch(TensorParallelInput)
def by_what_layers_are_given(event: TensorParallelInput, training: Training) -> Iterator[Finding]:
    """Compare what the ranks of a group have given the layers in their first forward."""
    if (apart := first_apart(event, training)) is None:
        return
    drawn = apart.between or apart.batches
    says = "each computes with random numbers of its own" if drawn else "batches, or random numbers, of each rank's own"
    yield Finding(
        f"ranks {listed(event.group, SHOWN)} compute one model together (tensor parallel), and give a layer other "
        f"values: {says}",
        tuple(
            Evidence(f"values that add up to {each.total:.6g}", "the same in one group", f"rank {rank}, {each.site}")
            for rank, each in list(apart.given.items())[:SHOWN]
        ),
        ALIKE if drawn else ONE_BATCH,
        place(apart.site),
        ambiguity=None if drawn else Ambiguity(CAUSES, PRINTS),
    )


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the first pass of a loader within the group, where a sampler splits the data by rank."""
    told = training.of(TensorParallel, pid=event.pid)
    groups = {each.group for each in told if len(each.group) > 1}
    trained = any(each.shards for each in training.of(ParametersHeld, pid=event.pid))
    if event.number or len(groups) != 1 or any(each.by_rows for each in told) or not trained:
        return
    (group,) = groups
    orders = {
        rank: each
        for rank, each in training.by_rank(OrderSeen, loader=event.loader, number=0, site=event.site).items()
        if rank in group
    }
    started = {
        rank: each
        for rank, each in training.by_rank(EpochStarted, loader=event.loader, number=0).items()
        if rank in orders
    }
    if len(orders) < len(group) or len(started) < len(group):
        return
    samplers = [each.sampler for each in started.values()]
    places = {each.rank for each in samplers if each is not None and each.replicas is not None and each.replicas > 1}
    drawn = {each.indices for each in orders.values()}
    if len(places) < len(group) or len(drawn) < len(group) or min(map(len, drawn)) < TELLING:
        return
    replicas = next(each.replicas for each in samplers if each is not None)
    yield Finding(
        f"ranks {listed(group, SHOWN)} compute one model together (tensor parallel) and draw different batches",
        tuple(
            Evidence(f"samples {listed(each.indices, TELLING)}", "the same in one group", f"rank {rank}'s sampler")
            for rank, each in list(orders.items())[:SHOWN]
        ),
        _mend(replicas, is_all=len(group) >= training.world_size),
        place(event.site),
    )


def _mend(replicas: int | None, *, is_all: bool) -> Fix:
    """Return how the data are to be split; over nothing where all ranks compute one model."""
    before = f"-sampler = DistributedSampler(data, ...)   # num_replicas={replicas}\n"
    if is_all:
        return Fix(
            "give all ranks the same batches: they compute one model together, and there is nothing to split over",
            diff=f"{before}+sampler = DistributedSampler(data, num_replicas=1, rank=0)",
        )
    return Fix(
        "split the data over the data-parallel ranks alone",
        diff=f'{before}+dp = mesh["dp"]   # the dimension beside that of the tensor parallelism, by its name\n'
        "+sampler = DistributedSampler(data, num_replicas=dp.size(), rank=dp.get_local_rank())",
    )
