"""What torch says when TORCH_DISTRIBUTED_DEBUG=DETAIL finds ranks in collectives that do not fit."""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass

from ddpdoctor.check import Claim, Log, Marker, Record, log_pattern

DETECTED = r"Detected mismatch between collectives on ranks"
SIDE = re.compile(
    r"Rank (?P<rank>\d+) is running (?P<old>inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d+),? ?)?OpType=(?P<op>\w+)(?:, TensorShape=\[(?P<shape>[\d, ]*)\])?"
)
METRICS = re.compile(r"sync_dist|sync_ddp|_ResultCollection|logger_connector|log_dict|torchmetrics|gather_all_tensors")
BUCKET = 10_000  # elements: gradients come in buckets of a million, metrics in a handful


class Mismatch(enum.Enum):
    """What does not fit: of each exactly one check speaks."""

    ORDER = "another operation, or another number"
    SHAPE = "the same operation on another size"
    BRANCH = "gradient buckets of different parts of the model"
    METRICS = "metrics that are synchronised under different keys"


@dataclass(frozen=True, slots=True)
class Side:
    """One rank's collective."""

    rank: int
    op: str
    seq: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """Write it as people compare it."""
        return f"rank {self.rank}: {self.op} of shape {list(self.shape)}" + (f", number {self.seq}" if self.seq else "")


def sides(text: str) -> tuple[Side, ...]:
    """Read both sides, or the one that older versions print."""
    return tuple(
        Side(
            int(each["rank"]),
            each["op"],
            each["seq"] or "",
            tuple(map(int, re.findall(r"\d+", each["shape"] or ""))),
        )
        for each in SIDE.finditer(text)
    )[:2]


def both_sides(record: Record, log: Log) -> tuple[Side, ...]:
    """Read both sides; older versions print each rank's own, so the other one stands in another record."""
    own = sides(record.text)
    if len(own) != 1:
        return own
    others = (each for other, _ in log.find(DETECTED) if other is not record for each in sides(other.text)[:1])
    other = next((each for each in others if each.rank != own[0].rank), None)
    return tuple(sorted((*own, other), key=lambda each: each.rank)) if other else own


def on_mismatch(mismatch: Mismatch) -> Marker:
    """Mark what is shown this mismatch."""
    return log_pattern(DETECTED, claim=Claim(mismatch_of, (mismatch,)))


def mismatch_of(record: Record, log: Log) -> Mismatch:
    """Return what does not fit."""
    both = both_sides(record, log)
    if METRICS.search(record.text):
        return Mismatch.METRICS
    if len(both) < 2 or both[0].op != both[1].op or both[0].seq != both[1].seq:  # noqa: PLR2004 - two sides
        return Mismatch.ORDER
    one, other = (math.prod(side.shape) for side in both)
    flat = both[0].op == "ALLREDUCE" and all(len(side.shape) == 1 for side in both)
    if flat and not _by_hand(record) and min(one, other) >= BUCKET and one != other:
        return Mismatch.BRANCH
    return Mismatch.SHAPE


def _by_hand(record: Record) -> bool:
    """Whether the user's own code called the collective: gradients are reduced by torch or a framework."""
    callers = [frame for frame in record.frames if not re.search(r"torch[/\\]distributed", frame.file)]
    return bool(callers) and callers[-1].is_users
