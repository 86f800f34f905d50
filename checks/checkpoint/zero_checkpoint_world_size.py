"""A checkpoint of DeepSpeed ZeRO was saved by another number of ranks.

ZeRO writes one file of optimizer states for each data-parallel rank, and by default reads them back on as many: "The
checkpoint being loaded used a DP world size of 32 but the current world size is 128. Automatic adjustment of ZeRO's
optimizer state partitioning with a new world size is not currently supported". The weights themselves do not depend on
the number of ranks.

How to be sure: both numbers stand in the message; the folder has a `zero_pp_rank_N_...` file for each rank that saved.

How to mend it: resume on as many ranks; or convert to a universal checkpoint, which any number can load; or take the
weights alone (`zero_to_fp32.py`, which DeepSpeed puts into the folder) and let the optimizer begin afresh.

Holds for DeepSpeed 0.3 and later with torch 2.2 to 2.13. Source: deepspeed/runtime/zero/stage_1_and_2.py, and
DeepSpeed documentation, "Universal Checkpointing".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Record

CARD = Card("DDP826", Severity.ERROR)


@sign(
    r"The checkpoint being loaded used a DP world size of (\d+) but the current world size is (\d+)",
    explains=("zero-optimizer-partition-mismatch",),
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell both numbers."""
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
