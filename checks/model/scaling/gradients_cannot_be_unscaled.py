"""GradScaler finds no gradient that it can unscale.

## What happens

GradScaler divides the gradients of an optimizer's parameters by the scale, and looks for infinities while it does so.
Where none of them has a gradient of `scaler.scale(loss).backward()` its step is refused: "No inf checks were recorded
for this optimizer". Often that is an optimizer which was built before the model was wrapped in FSDP or moved, or of
another part of the model. Where the parameters themselves are half precision (`model.half()`, a checkpoint in
float16), the division would lose what the scale had saved: "Attempting to unscale FP16 gradients".

## How to be sure

The message tells which of the two it is. Look at `next(model.parameters()).dtype`, and count the parameters of the
optimizer whose `.grad` is not None after backward.

## How to mend it

Build the optimizer from the model that is trained, after it is wrapped; call `scaler.scale(loss).backward()` before
`scaler.step(optimizer)`. Keep the parameters float32 and let autocast compute in half precision; bfloat16 needs no
scaler.

## Versions and sources

Holds for torch 2.2 to 2.13; FSDP1 has a ShardedGradScaler of its own, with the same words. Source:
torch/amp/grad_scaler.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP553", Severity.ERROR)
OWNED = Fix(
    "build the optimizer from the parameters that get gradients, after the model is wrapped",
    diff=" model = FSDP(model)\n+optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)",
)
FLOAT = Fix(
    "keep the parameters float32 and let autocast compute in half precision; bfloat16 needs no scaler",
    diff='-model = model.half()\n+with torch.autocast("cuda", dtype=torch.float16):\n'
    "+    loss = criterion(model(x), y)",
)


FSDP = re.compile(r"(?i:fsdp|fully_?shard)")
OWN_PART = Ambiguity(
    (
        "this rank holds no part of what is trained: FSDP with use_orig_params=True, most of it frozen or small",
        "the optimizer was built before the model was wrapped, and holds the parameters of before",
        "the loss of this rank does not reach what is trained",
    ),
    "print(sum(p.numel() for p in model.parameters() if p.requires_grad))   # above that line, on each rank",
)


@log_pattern(r"No inf checks were recorded for this optimizer|(?P<half>unscale FP16 gradients)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report which of the two refusals it is."""
    if match["half"]:
        said, expected, fix = "the parameters are half precision, and GradScaler unscales float32", "float32", FLOAT
    else:
        said = "no parameter of this optimizer got a gradient from scaler.scale(loss).backward()"
        expected, fix = "an optimizer of the parameters that are trained", OWNED
    in_part = OWN_PART if not match["half"] and FSDP.search(record.text) else None
    yield Finding(said, (record.proof(match, expected),), fix, record.place, ambiguity=in_part)
