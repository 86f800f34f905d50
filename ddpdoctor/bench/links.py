"""Collectives by size, next to what the link between two ranks carries."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.bench.in_rank import collectives
from ddpdoctor.bench.link_in_rank import link
from ddpdoctor.bench.pairs import as_pairs, measure_pairs
from ddpdoctor.bench.spread import Spread, slowest, spread
from ddpdoctor.facets import NotRun
from ddpdoctor.jobs.outcome import Raised, Returned

if TYPE_CHECKING:
    from ddpdoctor.bench.pairs import Pairs
    from ddpdoctor.jobs.outcome import Outcome
    from ddpdoctor.jobs.pool import Jobs

OPERATIONS = ("all_reduce", "all_gather", "broadcast", "parameter server")
"""The last one is no collective: each rank sends its tensor to rank 0, which sends the sum to each."""


LONGEST = 160  # characters of an exception's text


@dataclass(frozen=True, slots=True)
class Measured:
    """One operation on so many bytes; ``seconds`` of a call on the slowest rank."""

    operation: str
    size: int
    seconds: Spread

    def bandwidth(self, ranks: int) -> float:
        """Return the bytes a second that each rank's link carries, as nccl-tests count them ("busbw")."""
        share = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks}.get(self.operation, 1.0)
        return share * self.size / self.seconds.middle


@dataclass(frozen=True, slots=True)
class Links:
    """The operations measured, and what the link carries without them, in bytes a second."""

    backend: str
    ranks: int
    link: float
    measured: tuple[Measured, ...]


def measure_links(
    jobs: Jobs, backend: str, sizes: Sequence[int], seconds: float, progress: Callable[[str], None] = lambda _: None
) -> Links:
    """Measure all operations, each with each size (bytes) for about so many seconds.

    Raises:
        NotRun: a rank failed; the text says how.
    """
    found = {}
    for number, operation in enumerate(OPERATIONS, 1):
        progress(f"{number} of {len(OPERATIONS)}: {operation}")
        limit = 30 + 10 * seconds * len(sizes)
        ranks = values(jobs.run(collectives, (operation,), tuple(sizes), seconds, backend=backend, deadline=limit))
        found.update(
            {(name, size): slowest([rank[n][2] for rank in ranks]) for n, (name, size, _) in enumerate(ranks[0])}
        )
    carried = values(jobs.run(link, backend=backend, deadline=60))[0]
    measured = tuple(Measured(name, size, spread(times)) for (name, size), times in found.items())
    return Links(backend, jobs.world_size, carried, measured)


def measure_ranks(jobs: Jobs, backend: str) -> Pairs:
    """Measure each pair of the ranks of this host by itself.

    Raises:
        NotRun: a rank failed; the text says how.
    """
    members = range(jobs.world_size)
    found = values(jobs.run(measure_pairs, members, backend=backend, deadline=30 + 2 * jobs.world_size**2))[0]
    return as_pairs([f"rank {rank}" for rank in members], members, found)


def values(outcomes: Sequence[Outcome]) -> list[Any]:
    """Return what all ranks returned.

    Raises:
        NotRun: one of them failed; the text says how.
    """
    for outcome in sorted(outcomes, key=lambda each: not isinstance(each, Raised)):  # the others wait for that one
        if isinstance(outcome, Raised):
            said = outcome.message.strip().splitlines() or [""]
            raise NotRun(f"rank {outcome.rank} raised {outcome.kind}: {textwrap.shorten(said[0], LONGEST)}")
        if not isinstance(outcome, Returned):
            raise NotRun(f"rank {outcome.rank} {'did not end' if hasattr(outcome, 'stack') else 'died'}")
    return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
