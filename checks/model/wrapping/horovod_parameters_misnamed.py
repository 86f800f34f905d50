"""Horovod's optimizer is given other names of parameters than it holds.

## What happens

`hvd.DistributedOptimizer` finds the parameters of each rank by their names. Each parameter of the optimizer needs one,
and no two may have the same. It raises "named_parameters was specified, but one or more model parameters were not
named" where the optimizer holds parameters of another module as well (a loss with weights, a second network), or where
parameters were replaced after it was made; "Parameter names in named_parameters must be unique. Found duplicates" where
two modules are chained that name theirs alike; "named_parameters should be a sequence of tuples" for `parameters()`.

## How to be sure

    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    print(held - {id(p) for _, p in model.named_parameters()})

## How to mend it

Name all that the optimizer holds, with a prefix for each module:

    names = [*model.named_parameters(prefix="model"), *loss.named_parameters(prefix="loss")]
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=names)

## Versions and sources

Holds for Horovod 0.18 to 0.28. Sources: horovod/torch/optimizer.py; Horovod documentation, "Horovod with PyTorch".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP596", Severity.ERROR)
TOGETHER = (
    '+names = [*model.named_parameters(prefix="model"), *loss.named_parameters(prefix="loss")]\n'
    " optimizer = hvd.DistributedOptimizer(\n"
    "-    optimizer, named_parameters=...\n"
    "+    optimizer, named_parameters=names\n"
    " )"
)


@log_pattern(
    r"ValueError: (?:(?P<without>named_parameters was specified, but one or more model parameters were not named)"
    r"|Parameter names in named_parameters must be unique\. Found duplicates: (?P<twice>[^\n]{1,200})"
    r"|(?P<bare>named_parameters should be a sequence of tuples))"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell which of the three Horovod refuses."""
    if match["without"]:
        said = (
            "the optimizer holds parameters that named_parameters has no name for: hvd.DistributedOptimizer refuses it"
        )
        fix = Fix("name the parameters of all modules that the optimizer holds", diff=TOGETHER)
    elif match["twice"]:
        said = f"named_parameters has {match['twice'].rstrip('. ')} more than once: Horovod averages by names"
        fix = Fix("give the names of each module a prefix", diff=TOGETHER)
    else:
        said = "named_parameters is given parameters without their names"
        fix = Fix(
            "give it names and parameters",
            diff="-named_parameters=model.parameters()\n+named_parameters=model.named_parameters()",
        )
    yield Finding(said, (record.proof(match, "one name for each parameter of the optimizer"),), fix, record.place)
