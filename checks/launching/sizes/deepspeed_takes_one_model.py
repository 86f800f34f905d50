"""DeepSpeed is given a second model where it takes one.

## What happens

An engine of DeepSpeed is one model with its optimizer. An `Accelerator` with a DeepSpeed plugin therefore takes one
model: "You can't use same `Accelerator()` instance with multiple models when using DeepSpeed" (GANs, a student and its
teacher, diffusion with a text encoder). And the groups of ZeRO++ (`zero_hpz_partition_size`) are made once in a
process, so a second engine with that setting fails: "ZeRO parameter intra parallel group is already initialized".

## How to be sure

Count the calls of `deepspeed.initialize`, or the models among the arguments of `accelerator.prepare`.

## How to mend it

Models that are trained by one loss go into one module. Otherwise, with Accelerate 1.1 and later, name a plugin for
each, `Accelerator(deepspeed_plugins={"student": ..., "teacher": ...})`, and prepare each model after
`accelerator.state.select_deepspeed_plugin(...)`. What is not trained needs no engine:
`teacher.to(accelerator.device)`. Of several engines in a process one can have `zero_hpz_partition_size`.

## Versions and sources

Holds for Accelerate 1.1 to 1.15 and DeepSpeed 0.10 to 0.19 with torch 2.2 to 2.13. Sources: accelerate/accelerator.py,
`prepare`; deepspeed/utils/groups.py; Accelerate's documentation, "Using multiple models with DeepSpeed";
deepspeedai/DeepSpeed#4901.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1481", Severity.ERROR)
PLUGINS = Fix(
    "leave out of prepare what is not trained, and give each model that is trained a plugin of its own",
    diff="-student, teacher, optimizer = accelerator.prepare(student, teacher, optimizer)\n"
    "+student, optimizer = accelerator.prepare(student, optimizer)\n"
    "+teacher = teacher.to(accelerator.device).eval()",
)
GROUPS = Fix(
    "leave zero_hpz_partition_size to one engine of the process",
    diff='-"zero_hpz_partition_size": 8\n+"zero_hpz_partition_size": 1   # of the engines that are not trained',
)


@log_pattern(
    r"You can't use same `Accelerator\(\)` instance with multiple models when using DeepSpeed"
    r"|(?P<groups>ZeRO parameter intra parallel group is already initialized)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell which of the two refuses."""
    yield Finding(
        "a second engine is made with ZeRO++'s groups (zero_hpz_partition_size), which a process has once"
        if match["groups"]
        else "several models are given to one Accelerator, whose DeepSpeed engine takes one",
        (record.proof(match, "one engine with these groups" if match["groups"] else "one model"),),
        GROUPS if match["groups"] else PLUGINS,
        record.place,
    )
