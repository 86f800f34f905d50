"""Every epoch has the same order, because set_epoch is never called.

A DistributedSampler shuffles with a generator that is seeded with `seed + epoch`. Nobody but the training script
tells it the epoch: without `sampler.set_epoch(epoch)` each epoch repeats the first one's order, and each rank sees
the same share with the same batches for ever. Nothing fails; the model is worse.

To be sure: print the first batch's indices in two epochs.

Reported only when two epochs really came in the same order, the training's source has a loop over epochs, and neither
it nor the modules beside it that it imports mention set_epoch; and no framework that calls it itself (Lightning,
Accelerate, Transformers, Ignite) is imported.

Source: PyTorch documentation, DistributedSampler, "Warning". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP604", Severity.WARNING)


@probe
def by_two_epochs(loader: LoaderExam) -> Iterator[Finding]:
    """Compare two epochs, then look for the call."""
    first = loader.indexed()[0]
    if first.sampler is None or not (first.sampler.has_set_epoch and first.sampler.shuffles):
        raise NotRun("no sampler that shuffles by epoch")
    source = first.source
    if source is None or first.orders[0] != first.orders[1] or first.orders[2] == first.orders[3]:
        return
    if source.calls_set_epoch or source.frameworks:
        return
    if not source.has_epoch_loop:
        raise NotRun("no loop over epochs in the loader's source: name the loader by the training script")
    evidence = [
        Evidence(f"epochs 0 and 1 both begin with {list(first.orders[0][:8])}", "another order", "rank 0"),
        Evidence(f"no set_epoch in {', '.join(source.files)}", "sampler.set_epoch(epoch) in the loop", "source"),
    ]
    if source.commented:
        evidence.append(Evidence(source.commented, "the line without the comment sign", "source"))
    line = source.sampler_line
    yield Finding(
        "two epochs have the same order: set_epoch is never called",
        tuple(evidence),
        Fix(
            "tell the sampler each epoch",
            diff="  for epoch in range(epochs):\n+     loader.sampler.set_epoch(epoch)\n      for batch in loader:",
        ),
        Place(file=line[0], line=line[1]) if line else Place(),
    )
