"""The wrapped model is called several times before backward, while DDP looks for unused parameters.

## What happens

With `find_unused_parameters=True` each call marks at once the parameters that its own output does not use. If another
call of the same step did use them, their gradients come a second time for DDP: "Expected to mark a variable ready only
once". Two calls that use all parameters do no harm, nor does it without the option (all seen with torch 2.13).

## How to be sure

The log says that the option is on ("find_unused_parameters=True was specified in DDP constructor", or
a printed configuration), nothing of activation checkpointing is to be seen, and the step calls `model(...)` more than
once.

## How to mend it

One call for all inputs (`model(torch.cat([a, b]))`), or one that returns both results; or leave the
option out where every parameter is used in every step.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/csrc/distributed/c10d/reducer.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from .._logs import SEARCHES, beside, outside_forward
from ._reentrant import CHECKPOINTED, MESSAGE

AILMENT = Ailment("DDP536", Severity.ERROR)


@log_pattern(MESSAGE, context=(CHECKPOINTED, SEARCHES))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the option, where no checkpointing and no use behind the wrapper is to be seen."""
    searches = beside(record, log, SEARCHES)
    if not searches or outside_forward(record) or beside(record, log, CHECKPOINTED):
        return
    yield Finding(
        "with find_unused_parameters=True, a parameter that one use of the model left out got a gradient from another",
        (record.proof(match, "one gradient for each parameter and backward"), *searches),
        Fix(
            "call the wrapped model once for all inputs, or leave find_unused_parameters out",
            diff="-a, b = model(first), model(second)\n+a, b = model(torch.cat([first, second])).chunk(2)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "several calls of the wrapped model before one backward",
                "a parameter that is used outside of forward (param-used-outside-forward)",
                "reentrant activation checkpointing (parameter-ready-twice)",
            ),
            "grep -rnE 'model\\(|\\.module\\.|checkpoint\\(' --include=*.py .",
        ),
    )
