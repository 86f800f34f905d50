"""The collectives that timed out, as the watchdogs of ProcessGroupNCCL print them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import Log, Record

if TYPE_CHECKING:
    from ddpdoctor.check import Evidence

STUCK = r"\bcollective operation timeout:"
ENTRY = re.compile(
    r"(?:\[Rank (?P<rank>\d+)\] )?(?:(?:Watchdog c|C)aught )?collective operation timeout: WorkNCCL\("
    r"(?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)(?:, NumelIn=(?P<given>\d+), NumelOut=(?P<made>\d+))?"
    r"(?:[^\n)]*(?:\([^\n)]*\)[^\n)]*)?Timeout\(ms\)=(?P<limit>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank's collective that timed out; None and nothing where the line does not say."""

    record: Record
    rank: int | None
    seq: int | None = None
    op: str = ""
    given: int | None = None
    made: int | None = None
    limit: int = 0

    def __str__(self) -> str:
        """Return the name of the collective."""
        number = "" if self.seq is None else f" {self.seq}"
        size = "" if self.given is None else f", {self.given} elements"
        return f"collective{number} ({self.op}{size})" if self.op else "a collective"

    @property
    def proof(self) -> Evidence:
        """Quote the line."""
        return self.record.proof(re.search(STUCK, self.record.text), "every rank enters it and it ends")


def place_of(wait: Wait) -> tuple[object, ...]:
    """Return what tells the place of one rank from that of another."""
    return wait.seq, wait.op, wait.given


def waits(log: Log) -> tuple[Wait, ...]:
    """Read the first time-out of each rank."""
    found: dict[int | None, Wait] = {}
    for record, _ in log.find(STUCK):
        wait = _wait(record)
        found.setdefault(wait.rank, wait)
    return tuple(found.values())


def _wait(record: Record) -> Wait:
    entry = ENTRY.search(record.text)
    if entry is None:
        return Wait(record, record.rank)
    numbers = {name: None if entry[name] is None else int(entry[name]) for name in ("rank", "seq", "given", "made")}
    rank = numbers["rank"] if record.rank is None else record.rank
    limit = int(entry["limit"] or 0)
    return Wait(record, rank, numbers["seq"], entry["op"], numbers["given"], numbers["made"], limit)


def group_size(wait: Wait) -> int:
    """Count the ranks by what a gathering collective gives and makes; 0 where it does not tell."""
    if "GATHER" not in wait.op and "SCATTER" not in wait.op:
        return 0
    small, large = sorted((wait.given or 0, wait.made or 0))
    return large // small if small and large % small == 0 and large > small else 0


def one_group(log: Log, several: list[Wait]) -> bool:
    """Whether the lines are of one group: no rank waits in several, and its number in the group is its own."""
    numbers: dict[int | None, set[int | None]] = {}
    for record, _ in log.find(STUCK):
        wait = _wait(record)
        numbers.setdefault(wait.rank, set()).add(wait.seq)
    entries = [(wait.rank, ENTRY.search(wait.record.text)) for wait in several]
    return all(
        len(numbers[rank]) == 1 and entry is not None and entry["rank"] is not None and int(entry["rank"]) == rank
        for rank, entry in entries
    )
