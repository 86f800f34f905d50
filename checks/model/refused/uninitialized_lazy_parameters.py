"""Some parameters have no shape yet when DDP wraps the model.

## What happens

Lazy modules (`nn.LazyLinear`, `nn.LazyConv2d`) learn their shape in the first forward. DDP cannot broadcast
what has no memory and raises "Modules with uninitialized parameters can't be used with
`DistributedDataParallel`. Run a dummy forward pass to correctly initialize the modules".

## How to be sure

`any(torch.nn.parameter.is_lazy(p) for p in model.parameters())`.

## How to mend it

One forward with a sample input on every rank before wrapping, before the optimizer is built
too; or say the size.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern, probe

from .._words import counted, listed

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP509", Severity.ERROR)


@probe
def as_built(model: ModelExam) -> Iterator[Finding]:
    """Yield the name of the parameters that have no shape."""
    names = [parameter.name for parameter in model.model.parameters if parameter.lazy]
    if names:
        yield Finding(
            f"{counted(len(names), 'parameter')} of {model.model.kind} without a shape before the first forward: "
            + listed(names),
            (Evidence(f"uninitialised: {listed(names)}", "a shape", str(model.target)),),
            Fix(
                "run one forward before wrapping",
                diff=" model = build_model()\n+with torch.no_grad():\n+    model(sample_input)\n model = DDP(model)",
            ),
        )


@log_pattern(r"Modules with uninitialized parameters can't be used with `DistributedDataParallel`")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """DDP says it itself."""
    yield Finding(
        "DDP was given a model with lazy modules that have not seen an input yet",
        (record.proof(match, "parameters with a shape"),),
        Fix(
            "run one forward before wrapping, and before the optimizer is built",
            diff=" model = build_model()\n+with torch.no_grad():\n+    model(sample_input)\n model = DDP(model)",
        ),
        record.place,
    )
