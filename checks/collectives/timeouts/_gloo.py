"""Where each rank stood when gloo's time-out ended it, as the tracebacks of several ranks tell together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Log, Record, in_backward

if TYPE_CHECKING:
    from collections.abc import Iterable

LATE = r"Timed out waiting (\d+)ms for (recv|send) operation to complete"


@dataclass(frozen=True, slots=True)
class Stand:
    """What a rank waited in, and the user's line that it was called from."""

    rank: int
    doing: str
    where: str
    source: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"rank {self.rank} in {self.doing} at {self.where}"

    @property
    def proof(self) -> Evidence:
        """Quote it."""
        return Evidence(f"waits in {self.doing} at {self.where}", "where the other ranks are", self.source)


def stands(log: Log) -> tuple[Stand, ...]:
    """Read the first time-out of each rank whose traceback names a line of the user's."""
    found: dict[int, Stand] = {}
    for record, _ in log.find(LATE):
        if record.rank is not None and record.users is not None:
            where = f"{PureWindowsPath(record.users.file).name}:{record.users.line}"
            found.setdefault(record.rank, Stand(record.rank, _doing(record), where, record.proof().source))
    return tuple(found[rank] for rank in sorted(found))


def differ(several: Iterable[Stand]) -> bool:
    """Whether they are in more than one place."""
    return len({(each.doing, each.where) for each in several}) > 1


def _doing(record: Record) -> str:
    """Return the name of the operation: the function of torch.distributed that the user called, or a step of DDP."""
    for frame in record.frames:
        if frame.file.endswith("distributed_c10d.py"):
            return frame.function
        if in_backward(frame.file, frame.function):
            return "backward"
    return "a collective"
