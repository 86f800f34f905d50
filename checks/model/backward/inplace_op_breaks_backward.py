"""An operation of the model's own changes in place what backward needs.

## What happens

Autograd saves tensors in forward and notes their version. An operation such as `x += y`, `relu(inplace=True)` or
`x[mask] = 0` on such a tensor raises its version, and backward stops: "one of the variables needed for gradient
computation has been modified by an inplace operation: [torch.cuda.FloatTensor [8, 64]], which is output 0 of
ReluBackward0, is at version 1; expected version 0 instead". DDP has no part in it: one process alone fails too. A
tensor that is the output of a transposition (TBackward0, AsStridedBackward0) is a weight that `optimizer.step()`
changed between forward and backward.

## How to be sure

The message names the operation that made the tensor. Buffers, which DDP overwrites at each forward,
are the output of none; see buffers-overwritten.

## How to mend it

Write the operation so that it makes a new tensor; call all backwards before `optimizer.step()`.
`torch.autograd.set_detect_anomaly(True)` prints the line of forward.

## Versions and sources

Holds for torch 1.5 to 2.13. Source: torch/csrc/autograd/saved_variable.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

from .._logs import MODIFIED

AILMENT = Ailment("DDP534", Severity.ERROR)
WEIGHTS = ("TBackward", "AsStrided", "Transpose", "Permute")


@log_pattern(MODIFIED)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a tensor that an operation of the model made."""
    if not match[2]:
        return
    weight = match[2].startswith(WEIGHTS)
    yield Finding(
        f"a weight, {match[1]}, was changed between forward and backward"
        if weight
        else f"an in-place operation changed {match[1]}, the output of {match[2]}, before backward used it",
        (record.proof(match, f"version {match[4]}, as forward saved it"),),
        Fix(
            "run every backward of a forward before the step of the optimizer"
            if weight
            else "make a new tensor; anomaly detection prints the line of forward",
            diff="-opt_d.step()\n loss_g.backward()\n+opt_d.step()"
            if weight
            else "+torch.autograd.set_detect_anomaly(True)\n-x += y\n+x = x + y\n-nn.ReLU(inplace=True)\n+nn.ReLU()",
        ),
        record.place,
    )
