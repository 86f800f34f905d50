"""The data set is told the epoch, and workers that live on keep the first one.

## What happens

Each worker of a DataLoader has a copy of the data set, made when it was started. With `persistent_workers=True` it is
started once: what the training sets on the data set later (`dataset.set_epoch(epoch)`, `dataset.epoch = epoch`, a
probability that grows) stays in the process that sets it. Each epoch has the order, the crops or the difficulty of the
first.

## How to be sure

Print the attribute in `__iter__` or `__getitem__`. ddpdoctor (`ddpdoctor run`) reports a number that the data set
holds, that these methods read, and that has another value at the start of a later pass, where the workers live on.

## How to mend it

`persistent_workers=False`; or share the number: `self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()`, set
with `self.epoch.fill_(epoch)` and read with `self.epoch.item()`; or let each worker count its passes in `__iter__`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.utils.data,
"Multi-process data loading".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, OrderSeen, Severity, Training, place, watch

from .._passes import rank_pass

AILMENT = Ailment("DDP629", Severity.WARNING)


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Look for a number that was changed in the process that trains, and that workers read."""
    this = rank_pass(event, training)
    if this is None or not event.trained or not this.started.workers or not this.started.changed:
        return
    names = ", ".join(f"{this.started.dataset}.{name}" for name in this.started.changed)
    yield Finding(
        f"{names} is changed between epochs, and the workers, which live on, keep the first value",
        (
            Evidence(f"{names} has another value than at the pass before", "", f"rank {event.rank}, {event.site}"),
            Evidence(
                f"persistent_workers=True, num_workers={this.started.workers}",
                "workers that are started in each epoch, or a number in shared memory",
                str((this.data and this.data.reader) or event.site),
            ),
        ),
        Fix(
            "start the workers in each epoch, so that they have the data set as it is",
            diff="-DataLoader(dataset, num_workers=..., persistent_workers=True)\n"
            "+DataLoader(dataset, num_workers=...)",
        ),
        place((this.data and this.data.reader) or event.site),
    )
