"""A parameter is used outside of the wrapped forward, while DDP looks for unused ones.

## What happens

With `find_unused_parameters=True` DDP walks the graph of forward's output and marks at once every parameter that it
does not meet. If the loss then uses such a parameter behind the wrapper, `model.module.head.weight`, its gradient
comes a second time for DDP: "Expected to mark a variable ready only once ... 1) Use of a module parameter outside the
`forward` function". Without that option nothing is raised (both seen with torch 2.13).

## How to be sure

The traceback's own line reads the model through `.module`; with TORCH_DISTRIBUTED_DEBUG=INFO the
message names the parameter, and the loss uses it.

## How to mend it

Compute everything that reaches backward in forward and return it; or leave find_unused_parameters out.
A call through `.module` is not averaged as DDP promises, so moving it into forward is the better one.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/csrc/distributed/c10d/reducer.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from .._logs import beside, outside_forward
from ._reentrant import CHECKPOINTED, MESSAGE

AILMENT = Ailment("DDP535", Severity.ERROR)


@log_pattern(MESSAGE, context=(CHECKPOINTED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a line of the traceback that reads behind the wrapper, where no checkpointing is to be seen."""
    if (read := outside_forward(record)) and not beside(record, log, CHECKPOINTED):
        yield Finding(
            "the loss uses a parameter behind DDP's back: its gradient comes a second time",
            (record.proof(match, "one gradient for each parameter and backward"), record.proof(read)),
            Fix(
                "compute in forward what reaches backward",
                diff="-loss = criterion(model(x)) + model.module.head.weight.norm()\n"
                "+logits, norm = model(x)  # forward returns self.head.weight.norm() too\n"
                "+loss = criterion(logits) + norm",
            ),
            record.place,
        )
