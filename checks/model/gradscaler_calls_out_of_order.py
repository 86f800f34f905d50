"""GradScaler's calls come in an order, or for gradients, that it cannot work with.

## What happens

One step with a GradScaler is `scale(loss).backward()`, at most one `unscale_(optimizer)` (before clipping),
`step(optimizer)`, `update()`. A second unscale_ or step without `update()` between them is refused ("unscale_() has
already been called"), as is an optimizer none of whose parameters got a gradient ("No inf checks were recorded for
this optimizer": often one that was built before the model was wrapped or moved), and a model whose parameters are half
precision themselves ("Attempting to unscale FP16 gradients").

## How to be sure

The message tells which of them it is. Count `scaler.update()` for each `scaler.step()` in the loop; look at
`next(model.parameters()).dtype`.

## How to mend it

Call `update()` once for each step, also where the step is left out by accumulation. Build the optimizer from the model
that is trained, after wrapping it in FSDP. Keep the parameters float32 and let autocast choose; bfloat16 needs no
scaler.

## Versions and sources

Holds for torch 2.2 to 2.13; FSDP1 has a ShardedGradScaler of its own, with the same words. Source:
torch/amp/grad_scaler.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP553", Severity.ERROR)

ORDER = Fix(
    "one unscale_, one step and one update for each step of the optimizer",
    diff=" scaler.scale(loss).backward()\n+scaler.unscale_(optimizer)\n+clip_grad_norm_(model.parameters(), 1.0)\n"
    " scaler.step(optimizer)\n+scaler.update()",
)
OWNED = Fix(
    "build the optimizer from the parameters that get gradients, after the model is wrapped",
    diff=" model = FSDP(model)\n+optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)",
)
FLOAT = Fix(
    "keep the parameters float32 and let autocast compute in half precision; bfloat16 needs no scaler",
    diff='-model = model.half()\n+with torch.autocast("cuda", dtype=torch.float16):\n'
    "+    loss = criterion(model(x), y)",
)


@log_pattern(
    r"(?P<order>unscale_\(\) (?:has already been called on this optimizer since the last update\(\)"
    r"|is being called after step\(\))|step\(\) has already been called since the last update\(\))"
    r"|(?P<none>No inf checks were recorded (?:for this optimizer|prior to update))"
    r"|(?P<half>Attempting to unscale FP16 gradients)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell the three refusals apart."""
    if match["half"]:
        said, expected, fix = (
            "the parameters are half precision, and GradScaler unscales float32",
            "float32 parameters",
            FLOAT,
        )
    elif match["none"]:
        said = "no parameter of this optimizer got a gradient from scaler.scale(loss).backward()"
        expected, fix = "an optimizer of the parameters that are trained", OWNED
    else:
        said, expected, fix = (
            "a step of the optimizer is unscaled or stepped twice",
            "update() once for each step",
            ORDER,
        )
    yield Finding(said, (record.proof(match, expected),), fix, record.place)
