"""The same model is wrapped in DDP again and again.

## What happens

Each `DistributedDataParallel(model)` broadcasts all weights and builds new buckets. In a loop over epochs that is time
lost; where it wraps the wrapper of the epoch before, `model = DDP(model)`, the wrappers pile up: gradients are averaged
once for each of them, and the keys of the state dict grow to `module.module.module.`.

## How to be sure

ddpdoctor counts how often one module was wrapped by one line, with the same parameters to train, and
looks whether what is wrapped is itself a wrapper over the same ranks.

## How to mend it

Wrap once, before the loop over epochs.

A new wrapper after parameters were unfrozen is right, and not reported; neither is what a framework wraps.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch/nn/parallel/distributed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from linecache import getline

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, Training, Wrapped, place, watch

AILMENT = Ailment("DDP564", Severity.WARNING)
TIMES = 3  # a second time can be a second phase
ONCE = Fix(
    "wrap once, before the loop over epochs",
    diff="+model = DDP(model)\n for epoch in range(epochs):\n-    model = DDP(model)",
)


@watch(Wrapped)
def while_training(event: Wrapped, training: Training) -> Iterator[Finding]:
    """Look at what this process has wrapped before."""
    before = [each for each in training.of(Wrapped, pid=event.pid) if each is not event and each.group == event.group]
    inside = tuple(name.removeprefix("module.") for name in event.trainable)
    wrapper = next((each for each in before if each.trainable == inside and each.buffers == event.buffers), None)
    if event.kind == "DistributedDataParallel" and wrapper is not None:
        yield Finding(
            "DDP wraps a model that DDP holds already: gradients are averaged once by each wrapper",
            (
                Evidence("a DistributedDataParallel is wrapped", "the bare model", str(event.site)),
                Evidence(f"{wrapper.kind} was wrapped", "", str(wrapper.site)),
            ),
            _bare(event, wrapper, training),
            place(event.site),
        )
        return
    same = [
        each
        for each in before
        if (each.inner, each.site, each.trainable) == (event.inner, event.site, event.trainable)
        and not each.owning_library
    ]
    if len(same) + 1 == TIMES and not event.owning_library:
        yield Finding(
            f"one line wraps the same {event.kind} in DDP again and again",
            (Evidence(f"wrapped {TIMES} times, with the same parameters to train", "once", f"rank {event.rank}"),),
            ONCE,
            place(event.site),
        )


def _bare(outer: Wrapped, inner: Wrapped, training: Training) -> Fix:
    """Return which of two wrappers is to go: the inner one, where a framework has its own."""
    framework = training.framework
    first, second = (getline(each.site.file, each.site.line).strip() if each.site else "" for each in (inner, outer))
    return Fix(
        f"give {framework.name} the bare model, which it wraps by itself" if framework else "wrap the bare model, once",
        diff=f"-{first}   # this wrapper is one too many\n {second}" if first and first != second else ONCE.diff,
    )
