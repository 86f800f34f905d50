"""DeepSpeed's equation of batch sizes, as it prints it when it does not hold."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.check import Log, Record

EQUATION = r"micro_batch_per_gpu \* gradient_acc_step \*\s+world_size\s*(\d+)\s+!=\s+(\d+)\s+\*\s+(\d+)\s+\*\s+(\d+)"
LAUNCHED = (
    r"torch[./]distributed[./](?:elastic|run|launch)|\[launch(?:er)?\.py|num_gpus=\d|world_size=[2-9]"
    r"|local_rank[=: ]+[1-9]|nproc_per_node"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """The four numbers."""

    train: int
    micro: int
    accumulation: int
    world: int

    @property
    def ranks(self) -> int:
        """The number of ranks that would make the equation hold; 0 if none does."""
        step = self.micro * self.accumulation
        return self.train // step if step and self.train % step == 0 else 0


def batch(match: re.Match[str]) -> Batch:
    """Read the equation."""
    return Batch(*map(int, match.groups()))


def launched(record: Record, log: Log) -> tuple[Record, re.Match[str]] | None:
    """Find what shows that a launcher started several processes."""
    if found := re.search(LAUNCHED, record.text):
        return record, found
    return log.first(LAUNCHED)


def is_alone(numbers: Batch, record: Record, log: Log) -> bool:
    """Whether DeepSpeed sees one rank of several: another number would fit, and there was a launcher."""
    several = bool(record.rank) or launched(record, log) is not None
    return numbers.world == 1 and numbers.ranks > 1 and several
