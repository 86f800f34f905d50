"""An evaluation with Accelerate counts the samples that fill up its last batch.

## What happens

`accelerator.prepare(loader)` gives each rank batches of one size: where the data set does not divide evenly, the last
batch of some ranks is filled up with samples from the beginning. `accelerator.gather` returns those as well, so the
metric is of more samples than the data set has, and the first ones count twice. With a small evaluation set and many
ranks that moves the metric by points; the number also changes with the number of GPUs.

## How to be sure

Count the rows: `sum(len(accelerator.gather(y)) for _, y in loader)` is more than `len(dataset)`. In a running training
(`ddpdoctor run`) ddpdoctor compares the rows that come of a last batch with those that Accelerate knows to be new. It
says nothing where the file cuts what was gathered to a length by itself (`predictions[:len(dataset)]`).

## How to mend it

    predictions, targets = accelerator.gather_for_metrics((predictions, targets))

It does what gather does, and drops of the last batch what was there to fill it up.

## Versions and sources

Source: Accelerate documentation, "gather_for_metrics"; accelerate/data_loader.py, `BatchSamplerShard` (even_batches).
Seen with accelerate 1.15 and torch 2.13 CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    PaddingGathered,
    Severity,
    is_cut_to_length,
    place,
    watch,
)

AILMENT = Ailment("DDP670", Severity.WARNING)


@watch(PaddingGathered)
def while_training(event: PaddingGathered) -> Iterator[Finding]:
    """Report it once for the training, by rank 0."""
    if event.rank != 0 or event.site is None or is_cut_to_length(event.site.file):
        return
    twice = event.rows - event.kept
    yield Finding(
        f"the evaluation counts {twice} of {event.samples} samples twice: gather keeps what fills up the last batch",
        (
            Evidence(
                f"{event.rows} rows of the last batch, {event.kept} of them new",
                f"{event.kept} rows",
                "all ranks",
            ),
        ),
        Fix(
            "have Accelerate drop what it has filled up",
            diff="-predictions, targets = accelerator.gather((predictions, targets))\n"
            "+predictions, targets = accelerator.gather_for_metrics((predictions, targets))",
        ),
        place(event.site),
    )
