"""Tensors of sizes [0] or [1] are what DeepSpeed ZeRO-3 leaves of a partitioned parameter.

## What happens

Under ZeRO stage 3 each rank holds a part of every parameter, and the module's own parameters are empty placeholders.
`model.state_dict()` called on such a model saves the placeholders, and the real model refuses them: "size mismatch
for layers.0.weight: copying a param with shape torch.Size([1]) from checkpoint, the shape in current model is
torch.Size([8192, 1024])" ([0] since DeepSpeed 0.4). The reverse, `load_state_dict` called on a partitioned model, has
[0] on the side of the current model.

## How to be sure

In a running training (`ddpdoctor run`): the script saved tensors of size [0], while an engine of ZeRO 3 holds the
model. In an error, all sizes on one side are [0] or [1], where the other side has matrices. Placeholders on the side
of the checkpoint mean a wrong save; on the side of the current model they mean a wrong load.

## How to mend it

Save through the engine, `engine.save_checkpoint` or `save_16bit_model` (`stage3_gather_16bit_weights_on_model_save`),
and load through it, or before `deepspeed.initialize`. The weights of a file of placeholders are lost; those in a
folder of the engine are put together by `zero_to_fp32.py`.

## Versions and sources

Holds for DeepSpeed ZeRO-3 with torch 2.2 to 2.13. Source: DeepSpeed documentation, "ZeRO", saving weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    FileWritten,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    watch,
)

from .._reason import PLACEHOLDERS, Reason, are_placeholders, on_refusal
from .._refusal import CONTEXT, HEAD, SHAPE, Shape, refusal

AILMENT = Ailment("DDP827", Severity.ERROR)
SAVED = Fix(
    "save through DeepSpeed's engine, on all ranks; the config has stage3_gather_16bit_weights_on_model_save",
    diff="-torch.save(engine.module.state_dict(), path)\n+engine.save_16bit_model(folder)   # on all ranks",
)


@watch(FileWritten)
def while_training(event: FileWritten, training: Training) -> Iterator[Finding]:
    """Look for what the script has saved of a model of which ZeRO 3 keeps the contents."""
    told = [each for each in training.of(FileWritten) if each.emptied]
    if event.emptied and told[0] is event:
        yield Finding(
            f"{event.emptied} of the {event.tensors} tensors in {event.path} are empty: ZeRO 3 keeps their contents",
            (Evidence("tensors of size [0]", "whole tensors", f"rank {event.rank}, torch.save"),),
            SAVED,
            place(event.site, rank=event.rank),
        )


@on_refusal(Reason.PLACEHOLDERS)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise placeholders among the shapes that do not fit."""
    refused = refusal(record, match, log)
    yield _finding(record, next(re.finditer(SHAPE, record.text), match), refused.shapes)


@log_pattern(SHAPE, context=CONTEXT)
def by_shapes_alone(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise them where the head of the error is missing from the log."""
    shapes = tuple(Shape(*found.groups()) for _, found in log.find(SHAPE))
    if not log.first(HEAD) and are_placeholders(shapes):
        yield _finding(record, match, shapes)


def _finding(record: Record, match: re.Match[str], shapes: tuple[Shape, ...]) -> Finding:
    saved = {shape.file for shape in shapes} <= PLACEHOLDERS
    return Finding(
        f"{len(shapes)} tensors of the checkpoint are placeholders: ZeRO-3 held their contents when it was saved"
        if saved
        else f"the model is partitioned by ZeRO-3: {len(shapes)} of its parameters are placeholders",
        (record.proof(match, "whole tensors on both sides"),),
        Fix(
            "save through DeepSpeed's engine; the weights are in what the engine saved, not in this file"
            if saved
            else "load before deepspeed.initialize, or through DeepSpeed's engine",
            command="python checkpoint/zero_to_fp32.py checkpoint weights  # from a folder that the engine saved",
            diff="-torch.save(model.state_dict(), path)\n+engine.save_checkpoint(folder)  # on all ranks"
            if saved
            else "-model.load_state_dict(state)\n+engine.load_checkpoint(folder)",
        ),
        record.place,
    )
