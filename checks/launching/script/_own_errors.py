"""Errors of any program, in a training of several ranks: who met one, and what that says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._hosts.ranks_of_hosts import beyond_first_host

if TYPE_CHECKING:
    from ddpdoctor.check import Log

MANY = 8  # ranks that are listed


@dataclass(frozen=True, slots=True)
class Who:
    """The ranks and hosts that met an error, among those that a log has lines of."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    all_ranks: frozenset[int]
    all_hosts: frozenset[str]
    is_beyond: bool
    """Whether it was on another host than rank 0's, by torchrun's own numbers."""

    @property
    def words(self) -> str:
        """Who it was, as the subject of a sentence."""
        if not self.ranks:
            several = len(self.hosts) > 1
            listed = ", ".join(self.hosts[:MANY]) + (", ..." if len(self.hosts) > MANY else "")
            return f"the hosts {listed}" if several else listed if len(self.all_hosts) > 1 and listed else "the program"
        listed = ", ".join(map(str, self.ranks[:MANY])) + (", ..." if len(self.ranks) > MANY else "")
        return f"rank{'s' if len(self.ranks) > 1 else ''} {listed}"

    @property
    def is_apart(self) -> bool:
        """Whether several ranks, and not rank 0, met it: on another host, as a rule."""
        return len(self.ranks) > 1 and 0 not in self.ranks

    @property
    def is_one_of_several(self) -> bool:
        """Whether a single rank beside the first met it."""
        return len(self.ranks) == 1 and 0 not in self.ranks


def who(log: Log, pattern: str) -> Who:
    """Return who said what a declared pattern matches."""
    found = [record for record, _ in log.find(pattern)]
    ranks = tuple(sorted({each.rank for each in found if each.rank is not None}))
    return Who(
        ranks,
        tuple(sorted({each.node for each in found if each.node is not None})),
        frozenset(each.rank for each in log.records if each.rank is not None),
        frozenset((*log.nodes, *(each.node for each in log.records if each.node is not None))),
        beyond_first_host(log, ranks),
    )
