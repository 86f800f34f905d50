"""Which host a rank belongs to, as far as torchrun's summary of a failure tells."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Log

LOCAL = r"\brank +: (?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,5})\)"
"""A context that a facet declares to ask ``beyond_first_host``."""


def beyond_first_host(log: Log, ranks: Collection[int]) -> bool:
    """Whether one of these ranks is on another host than rank 0: among the ranks of its host its number is smaller."""
    return any(int(found["rank"]) in ranks and int(found["local"]) < int(found["rank"]) for _, found in log.find(LOCAL))
