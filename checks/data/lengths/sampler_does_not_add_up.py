"""DistributedSampler's share does not add up to what it has counted.

## What happens

The sampler counts the dataset when it is made, and each pass makes a list of as many indices, filled up to a multiple
of the ranks. "assert len(indices) == self.total_size" fails where that did not come out: torch before 1.8 could add no
more indices than the dataset has, too few where there are more than twice as many ranks as samples, and the samplers
that mmcv, mmdetection and others have copied still do so. In any version it fails where the dataset's length has
changed since.

## How to be sure

`print(len(dataset), world_size)` where the sampler is made, and at the failed line. A number of samples far below what
is expected is a path or an annotation file that was not read.

## How to mend it

Give the dataset its samples; start at most as many ranks as there are samples. Make the sampler anew, or at least the
loader, after the dataset has changed.

## Versions and sources

Holds for torch up to 2.13. Source: torch/utils/data/distributed.py; pytorch/pytorch#45324.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP656", Severity.ERROR)


@log_pattern(
    r"assert len\(indices\) == self\.(?P<count>total_size|num_samples)\b[^\n]{0,80}\n(?:[^\n]{0,200}\n){0,2}?"
    r"[^\n]{0,60}AssertionError"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Nothing but the code line says what was compared."""
    yield Finding(
        "the sampler's indices are not as many as it has counted: the dataset has too few samples, or has changed",
        (record.proof(match, "as many indices as ranks times samples of each"),),
        Fix(
            "see how many samples the dataset has on each rank, and let it have them before the sampler is made",
            diff='+print(f"rank {rank}: {len(dataset)} samples")\n'
            " sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the dataset has less than half as many samples as there are ranks (torch before 1.8, or a copy)",
                "the dataset's length has changed since the sampler was made",
            ),
            "python -c 'import torch; print(torch.__version__)'   # and print(len(dataset)) at both places",
        ),
    )
