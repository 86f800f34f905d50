"""The optimizer's part in a ZeRO checkpoint has another size than this rank's part.

## What happens

ZeRO lays the trainable parameters end to end and gives each rank a section. The states in a checkpoint fit as long as
the same parameters are trainable, in the same groups, and as many ranks divide them. Freezing or unfreezing layers,
other parameter groups (weight decay), another number of ranks or another ZeRO stage change the sections. "key exp_avg
saved torch.Size([15013760]) parameter shape torch.Size([597396608])" shows the two lengths.

## How to be sure

Print `sum(p.numel() for p in model.parameters() if p.requires_grad)` and the number of ranks in both runs. The saved
length times the number of ranks that saved gives the number of trainable elements of that run.

## How to mend it

Best first: set `requires_grad` and the groups as they were, before `deepspeed.initialize`, and use as many ranks; or
load the weights only, `engine.load_checkpoint(folder, load_optimizer_states=False)`.

## Versions and sources

Holds for DeepSpeed with torch 2.2 to 2.13. Source: DeepSpeed documentation, "ZeRO", and microsoft/DeepSpeed issue
864.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP828", Severity.ERROR)


@log_pattern(r"key (exp_avg\w*|momentum\w*) saved torch\.Size\(\[(\d+)\]\) parameter shape torch\.Size\(\[(\d+)\]\)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two lengths."""
    key, saved, here = match[1], int(match[2]), int(match[3])
    if saved == here:
        return
    yield Finding(
        f"{key} of this rank has {saved:,} elements in the checkpoint and {here:,} here: what is trained, or by how "
        "many ranks, has changed",
        (record.proof(match, f"{here} elements in the checkpoint"),),
        Fix(
            "freeze and group the parameters as in the run that saved, on as many ranks; or load the weights only",
            diff="-engine.load_checkpoint(folder)\n+engine.load_checkpoint(folder, load_optimizer_states=False)",
        ),
        record.place,
    )
