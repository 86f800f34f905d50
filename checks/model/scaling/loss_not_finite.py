"""The loss is no number any more, and the program gives up.

## What happens

Many programs look at the loss and end: "Loss is nan, stopping training", "Loss became infinite or NaN at
iteration=105". Where they end by `sys.exit(1)` there is no traceback, and torchrun says no more than "exitcode : 1".
Where the loss of one rank alone is looked at, that rank leaves and the others wait for it, or lose their connection.

## How to be sure

The line is the program's own. The ranks have different batches: print the rank beside it.

## How to mend it

A smaller learning rate or a longer warm-up, gradients that are clipped, bfloat16 in place of float16; and look at the
batch of that rank. Decide on all ranks together whether to end: all_reduce what each of them found.

## Versions and sources

Sources: facebookresearch/mae, engine_pretrain.py; detectron2, engine/train_loop.py; Lightning, `detect_nan_parameters`;
Megatron-LM, distributed/param_and_grad_buffer.py. Holds for all versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1568", Severity.ERROR)


@log_pattern(r"RuntimeError: Function '(?P<function>\w+)' returned nan values in its (?P<which>\d+)th output")
def of_anomaly_detection(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the operation in whose backward torch's anomaly detection found the first NaN."""
    operation = re.sub(r"Backward\d*$", "", match["function"])
    yield Finding(
        f"the backward of {operation} gave NaN: anomaly detection ends the rank there",
        (record.proof(match, "finite gradients"),),
        Fix(
            f"keep what goes into {operation} where its derivative is finite (no 0 under a root, a logarithm or "
            f"a division)",
            diff="-y = x.sqrt()\n+y = x.clamp_min(1e-6).sqrt()",
        ),
        record.place,
    )


@log_pattern(
    r"(?P<said>Loss is (?:nan|inf|-inf), stopping training|Loss became infinite or NaN at iteration=\d+"
    r"|The loss returned in `?training_step`? is (?:nan|inf)[^\n]{0,20}|found NaN in local (?:grad norm|forward loss)"
    r"[^\n]{0,60}|ValueError: Loss is (?:nan|NaN|inf)[^\n]{0,60})"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the program that looked."""
    yield Finding(
        "the loss of a rank is no finite number, and the program ends for that",
        (record.proof(match, "a finite loss"),),
        Fix(
            "train with a smaller learning rate, clipped gradients or bfloat16, and let all ranks decide together",
            diff="+bad = torch.tensor(float(not torch.isfinite(loss)), device=loss.device)\n+dist.all_reduce(bad)\n"
            "-if not math.isfinite(loss.item()):\n+if bad.item():\n     sys.exit(1)",
        ),
        record.place,
    )
