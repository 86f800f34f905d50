"""What Horovod lists of the ranks that it waits for: the tensors that each has not submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Log, Record

STALLED_WARNING = (
    r"waiting for remainder of ranks for more than \d+ seconds|One or more tensors were submitted to be reduced"
)
TENSORS = r"^(?:(?P<rank>\d+)!?: )?\[(?P<names>[^\]\n]*(?:[Aa]llreduce|[Aa]llgather|[Bb]roadcast)[^\]\n]*)\]"


def submit_others(record: Record, log: Log) -> list[int]:
    """Return the ranks that each have submitted what another of them has not; none where the lists were cut.

    A rank that lacks some of the tensors only has submitted the others: it is there.
    """
    absent: dict[int, frozenset[str]] = {}
    for each, found in log.find(TENSORS):
        rank = each.rank if found["rank"] is None else int(found["rank"])
        if each.source != record.source or rank is None:
            continue
        if "..." in found["names"]:
            return []
        absent[rank] = frozenset(name.strip() for name in found["names"].split(","))
    every = frozenset().union(*absent.values())
    is_mixed = len(absent) > 1 and all(names < every for names in absent.values())
    return sorted(absent) if is_mixed else []
