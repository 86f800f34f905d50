"""An IterableDataset yields the same samples in each worker of a DataLoader.

Each worker has a copy of the data set and iterates over all of it: with num_workers=N every sample comes N times in
an epoch, the epoch is N times too long, and neighbouring batches are the same.

To be sure: count the batches of an epoch with num_workers=0 and with num_workers=2.

Reported when each batch that was really loaded came exactly as often as there are workers. Source: PyTorch
documentation, torch.utils.data.IterableDataset, and get_worker_info(). Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP609", Severity.ERROR)
ENOUGH = 2  # batches that are no chance


@probe
def by_contents(loader: LoaderExam) -> Iterator[Finding]:
    """Count how often each batch came on rank 0."""
    first = loader.first
    if not first.iterable or first.workers < 2:  # noqa: PLR2004 - one worker has all the samples
        raise NotRun("no IterableDataset with two workers")
    loaded = first.loaded
    if not first.complete:
        loaded = loaded[: len(loaded) // first.workers * first.workers]
    times = Counter(digest for digest in loaded if digest)
    if len(times) >= ENOUGH and set(times.values()) == {first.workers}:
        yield Finding(
            f"{first.dataset} yields every batch {first.workers} times, once in each worker",
            (Evidence(f"{len(loaded)} batches loaded, {len(times)} different", "each batch once", "rank 0"),),
            Fix(
                "leave out the other workers' samples",
                diff="  def __iter__(self):\n+     worker = torch.utils.data.get_worker_info()\n"
                "+     start, step = (worker.id, worker.num_workers) if worker else (0, 1)\n"
                "-     yield from self.samples\n+     yield from itertools.islice(self.samples, start, None, step)",
            ),
            Place(file=loader.target.rpartition(":")[0]),
        )
