"""The samplers of the ranks are at different epochs.

## What happens

DistributedSampler permutes the whole data set with a generator that it seeds with `seed + epoch`, and takes the
rank's part. If the ranks call set_epoch with different numbers in the same epoch, each takes its part of another
permutation: samples come to several ranks, others to none. Usual causes: set_epoch with a random number, with a count
of steps that differs between ranks, with the epoch of a checkpoint that rank 0 alone has read.

## How to be sure

Print `sampler.epoch` on each rank at the start of an epoch. ddpdoctor (`ddpdoctor run`) reads it where the training
iterates its loader, and compares the ranks that share gradients, pass by pass.

## How to mend it

Call set_epoch with the same number on all ranks: count epochs, and broadcast what only one rank knows.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.utils.data.distributed.DistributedSampler".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, EpochSet, Evidence, Finding, Fix, OrderSeen, Severity, Training, place, watch

from .._passes import same_data, same_pass, splitting, told
from .._words import SHOWN, shown

AILMENT = Ailment("DDP640", Severity.ERROR)


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the epochs of samplers that share one data set out."""
    ranks = same_pass(event, training)
    samplers = splitting(ranks)
    epochs = [sampler.epoch for sampler in samplers.values()]
    if not samplers or None in epochs or len(set(epochs)) == 1 or same_data(ranks) is False:
        return
    if not all(sampler.shuffle and sampler.kind == "DistributedSampler" for sampler in samplers.values()):
        return
    calls = [
        call
        for call in training.of(EpochSet, pid=event.pid)
        if call.time <= event.time and call.sampler == samplers[event.rank or 0].number
    ]
    yield Finding(
        "the samplers of the ranks are at different epochs: their shares overlap",
        tuple(
            Evidence(
                f"epoch {epoch}, the pass begins {shown(each.order.indices)}",
                f"epoch {epochs[0]}, as on rank {next(iter(ranks))}",
                f"rank {rank}'s sampler, pass {each.order.number}",
            )
            for epoch, (rank, each) in zip(epochs, ranks.items(), strict=True)
        )[:SHOWN],
        Fix(
            f"call set_epoch with the same number on all ranks (here: {told(epochs)})",
            diff=" for epoch in range(epochs):\n+    loader.sampler.set_epoch(epoch)\n     for batch in loader:",
        ),
        place(calls[-1].site if calls else event.site),
    )
