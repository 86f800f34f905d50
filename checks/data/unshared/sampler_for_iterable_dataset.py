"""A loader of an iterable data set is given a sampler.

## What happens

A sampler chooses indices, and an IterableDataset has none: "DataLoader with IterableDataset: expected unspecified
sampler option, but got sampler=<DistributedSampler ...>", and the same for shuffle and batch_sampler. Nothing splits
such a data set over the ranks but its own code: without it every rank trains on all of it.

## How to be sure

`isinstance(dataset, torch.utils.data.IterableDataset)`; streaming data sets of Hugging Face and webdataset are.

## How to mend it

Split in `__iter__` by rank and worker, or with the library's own: `split_dataset_by_node` (datasets),
`wds.split_by_node` (webdataset). Leave out sampler and shuffle.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/utils/data/dataloader.py, `DataLoader.__init__`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP631", Severity.ERROR)


@log_pattern(r"DataLoader with IterableDataset: expected unspecified (?P<option>sampler|shuffle|batch_sampler) option")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the option."""
    option = match["option"]
    yield Finding(
        f"{option} is given to the loader of an iterable data set, which has no indices",
        (record.proof(match, f"no {option}; the data set itself is split over the ranks"),),
        Fix(
            "split the data set by rank, and leave the option out",
            diff=f"-loader = DataLoader(dataset, {option}=...)\n"
            "+from datasets.distributed import split_dataset_by_node   # a stream of Hugging Face\n"
            "+dataset = split_dataset_by_node(dataset, rank=dist.get_rank(), world_size=dist.get_world_size())\n"
            "+loader = DataLoader(dataset, batch_size=32)",
        ),
        record.place,
    )


@log_pattern(r"TypeError: object of type '(?P<type>\w+)' has no len\(\)")
def by_its_length(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """DistributedSampler asks for the length before the loader sees either."""
    if re.search(r"utils[/\\]data[/\\]distributed\.py", record.text):
        yield Finding(
            f"a DistributedSampler is made for {match['type']}, which has no length and no indices",
            (record.proof(match, "no sampler; the data set itself is split over the ranks"),),
            Fix(
                "split the data set by rank, in its __iter__",
                diff="-sampler = DistributedSampler(dataset)\n"
                "+for sample in itertools.islice(self.stream(), rank, None, world_size):",
            ),
            record.place,
        )
