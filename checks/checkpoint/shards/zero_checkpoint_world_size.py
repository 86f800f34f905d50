"""A checkpoint of DeepSpeed ZeRO was saved by another number of ranks.

## What happens

ZeRO writes one file of optimizer states for each data-parallel rank, and by default reads them back on as many: "The
checkpoint being loaded used a DP world size of 32 but the current world size is 128. Automatic adjustment of ZeRO's
optimizer state partitioning with a new world size is not currently supported". The weights themselves do not depend
on the number of ranks.

## How to be sure

Both numbers are in the message. The folder has a `zero_pp_rank_N_...` file for each rank that saved.

## How to mend it

Best first: resume on as many ranks; or convert to a universal checkpoint
(`python -m deepspeed.checkpoint.ds_to_universal`), which any number of ranks can load; or take the weights alone
(`zero_to_fp32.py`, which DeepSpeed puts into the folder) and let the optimizer begin afresh.

## Versions and sources

Holds for DeepSpeed 0.3 and later with torch 2.2 to 2.13. Source: deepspeed/runtime/zero/stage_1_and_2.py, and
DeepSpeed documentation, "Universal Checkpointing".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP826", Severity.ERROR)


@log_pattern(r"The checkpoint being loaded used a DP world size of (\d+) but the current world size is (\d+)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report both numbers."""
    saved, here = match[1], match[2]
    yield Finding(
        f"the ZeRO checkpoint was saved by {saved} ranks and is loaded by {here}",
        (record.proof(match, f"{saved} ranks"),),
        Fix(
            f"resume on {saved} ranks, convert the checkpoint to a universal one, or take the weights alone",
            command="python -m deepspeed.checkpoint.ds_to_universal --input_folder checkpoint/global_stepN"
            " --output_folder checkpoint/global_stepN_universal  # then checkpoint: {load_universal: true}\n"
            "python checkpoint/zero_to_fp32.py checkpoint weights  # the weights alone",
        ),
        record.place,
    )
