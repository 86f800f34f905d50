"""MosaicML's streaming finds shared memory that an earlier run has left, or that another process believes its own.

## What happens

The ranks and workers of a host share the state of a StreamingDataset in memory named `/dev/shm/000000_barrier` and the
like, which the first process of the host makes. A run that was killed leaves it, and the next one ends with
"FileExistsError: [Errno 17] File exists: '/000000_barrier'", or with "Reused local directory", since the folder seems
to be in use. The same comes of ranks that do not know of each other: streaming reads RANK, WORLD_SIZE and
LOCAL_WORLD_SIZE, and where these are not set (`mp.spawn`, a notebook), every rank takes itself for the first.

## How to be sure

`ls -l --time-style=full-iso /dev/shm` shows names such as `000000_locals` that are older than this start.

## How to mend it

Call `streaming.base.util.clean_stale_shared_memory()` once, before the first dataset, on all ranks: the first of each
host cleans, and the others wait. It takes the memory of other trainings that stream on this host along. Start the ranks
by a launcher that sets the variables. Give each of two datasets, as of training and evaluation, a folder of its own.

## Versions and sources

Holds for mosaicml-streaming 0.4 to 0.13, with all versions of torch. Source: streaming/base/shared/prefix.py,
streaming/base/world.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP655", Severity.ERROR)
LEFT = "an earlier run was killed, and has left its memory"
ALONE = "each rank takes itself for the first: no launcher has set RANK, WORLD_SIZE and LOCAL_WORLD_SIZE"


@log_pattern(
    r"FileExistsError: \[Errno 17\] File exists: '/?(?P<memory>\d{6}_(?:barrier|locals|next_epoch|epoch_\w+|shard_\w+"
    r"|cache_\w+|resume))'"
    r"|ValueError: Reused local directory: (?P<folders>[^\n]{1,200}?)\. Provide a different one"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell the memory that is there from the folder that seems to be in use."""
    yield Finding(
        f"streaming's shared memory is there already: /dev/shm/{match['memory']}"
        if match["memory"]
        else f"streaming takes its local folder for one that is in use: {match['folders']}",
        (record.proof(match, "memory that this run makes, and a folder of each dataset's own"),),
        Fix(
            "remove what an earlier run has left, before the first dataset is made: on all ranks, which wait for it",
            command="ls -l --time-style=full-iso /dev/shm | grep -E ' [0-9]{6}_'   # older than this start: left",
            diff="+from streaming.base.util import clean_stale_shared_memory\n+clean_stale_shared_memory()",
        ),
        record.place,
        ambiguity=Ambiguity(
            (LEFT, ALONE) if match["memory"] else (LEFT, "two datasets of this run have one local folder", ALONE),
            "ls -l --time-style=full-iso /dev/shm; env | grep -E '^(RANK|WORLD_SIZE|LOCAL_WORLD_SIZE)='   # in a rank",
        ),
    )
