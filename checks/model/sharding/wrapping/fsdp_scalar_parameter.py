"""FSDP cannot shard a parameter without a dimension.

## What happens

A parameter that is a single number, `nn.Parameter(torch.tensor(0.07))` (a logit scale, a temperature, a learned weight
of a loss), has no first dimension to split over the ranks: "FSDP doesn't support scalar parameters. Change logit_scale
to a 1D tensor with numel equal to 1".

## How to be sure

The message names the parameter. `[n for n, p in model.named_parameters() if p.dim() == 0]` lists all of them.

## How to mend it

Make it a tensor of one element, or leave it out of FSDP (`ignored_states`) and reduce its gradient yourself. A
checkpoint that has it as a number must be reshaped when it is loaded.

## Versions and sources

Holds for FSDP1 and fully_shard (FSDP2) in torch 2.2 to 2.13. Source: torch/distributed/fsdp, `_init_utils.py` and
`_fully_shard/_fsdp_init.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP586", Severity.ERROR)


@log_pattern(
    r"(?P<who>FSDP|fully_shard) doesn't support s(?:calar|alar) parameters\. Change (?P<name>\S+) to a 1D tensor"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the parameter."""
    name = match["name"]
    attribute = name.rpartition(".")[2]
    yield Finding(
        f"{match['who']} cannot shard {name}: it is a single number",
        (record.proof(match, f"{name} has one dimension at least"),),
        Fix(
            "make it a tensor of one element",
            diff=f"-self.{attribute} = nn.Parameter(torch.tensor(value))\n"
            f"+self.{attribute} = nn.Parameter(torch.tensor([value]))",
        ),
        record.place,
    )
