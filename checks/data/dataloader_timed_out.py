"""No worker of a data loader delivered a batch within its time-out.

## What happens

`DataLoader(timeout=60)` raises "DataLoader timed out after 60 seconds" where its workers are still at work, or stand
still: a slow or hanging network file system, a decoder with threads of its own, a lock that was held when the worker
was forked, more workers than processors. The rank that raises ends, and the others wait for it in their next
collective.

## How to be sure

`py-spy dump --pid PID` of a worker while the loader waits: the line it stands at. In `__getitem__` or `open`: the
storage; in a lock, OpenCV or tokenizers: the fork.

## How to mend it

Storage: copy the data to a local disk, or raise the time-out. Fork: `cv2.setNumThreads(0)`,
`TOKENIZERS_PARALLELISM=false`, `multiprocessing_context="spawn"`. Processors: fewer workers.

## Versions and sources

Holds for all versions of torch. Source: torch/utils/data/dataloader.py, `_get_data`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP632", Severity.ERROR)


@log_pattern(r"RuntimeError: DataLoader timed out after (?P<seconds>[\d.]+) seconds")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Leave open what the workers were doing: the message does not tell."""
    yield Finding(
        f"the workers of a loader delivered no batch in {match['seconds']} s",
        (record.proof(match, "a batch within the loader's timeout"),),
        Fix(
            "see where a worker stands, and move that work, or give it more time",
            command="py-spy dump --pid PID   # of a worker, while the loader waits",
            diff="-DataLoader(dataset, num_workers=8, timeout=60)\n+DataLoader(dataset, num_workers=4, timeout=600)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "reading or decoding a batch takes longer: slow storage, more workers than processors",
                "a worker stands in a lock that was held when it was forked (OpenCV, tokenizers, a thread pool)",
            ),
            "py-spy dump --pid PID   # of a worker",
        ),
    )
