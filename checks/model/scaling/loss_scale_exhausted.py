"""The loss scale of fp16 cannot become smaller: gradients overflow in every step.

## What happens

With fp16 the loss is multiplied by a scale, which is halved whenever a gradient is infinite or NaN, and the step is
skipped. Where that happens step after step, the scale reaches its least value and the framework gives up: DeepSpeed
"Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", fairseq "Minimum loss scale
reached". All ranks skip together, since an overflow on one is an overflow for all; one bad batch on one rank is
enough.

## How to be sure

`torch.isfinite(loss)` before backward on each rank: where the loss itself is not finite, the data or the forward is at
fault; where it is finite, the gradients exceed fp16.

## How to mend it

Train in bfloat16, which has the range of float32; a model that was trained in bfloat16 overflows in fp16. Otherwise
clip gradients, lower the learning rate, and leave out the batch that is not finite.

## Versions and sources

Holds for DeepSpeed 0.8 to 0.18 and fairseq, whatever the torch. Source: deepspeed/runtime/fp16/loss_scaler.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP549", Severity.ERROR)


@log_pattern(
    r"Current loss scale already at minimum - cannot decrease scale anymore|(?:FloatingPointError: )?"
    r"Minimum loss scale reached \("
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The message has this one reason; why gradients overflow, it does not say."""
    yield Finding(
        "every step's gradients overflow in fp16: the loss scale is at its minimum",
        (record.proof(match, "an overflow now and then"),),
        Fix(
            "train in bfloat16",
            diff='-"fp16": {"enabled": true},\n+"fp16": {"enabled": false},\n+"bf16": {"enabled": true},',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the model's values exceed fp16 (it was trained in bfloat16, or learns too fast)",
                "a batch, on one rank perhaps, makes the loss NaN or infinite",
            ),
            "print(rank, torch.isfinite(loss).item(), loss.item())   # before backward, on each rank",
        ),
    )
