"""Ranks that are at work by the workers of their loaders alone: where these are is told, and what tells more."""

from __future__ import annotations

from ddpdoctor.findings import Report
from ddpdoctor.stuck.told.sighting import Sighted, Sighting
from ddpdoctor.stuck.told.text import ranks_text
from ddpdoctor.stuck.told.verdict import _said
from ddpdoctor.watch.events import Doing, Position, Site, Stalled, Worker

LOOP, READS = Site("train.py", 25, "main"), Site("data.py", 18, "__getitem__")


def works(rank: int, *workers: Worker) -> Position:
    """Return a rank that is at work."""
    return Position(rank=rank, pid=rank + 1, doing=Doing.WORKING, seconds=5, site=LOOP, stack=(LOOP,), workers=workers)


def said(*ranks: Position) -> str:
    """Return the verdict on these."""
    return _said(Stalled(pid=0, time=1.0, ranks=ranks, world_size=len(ranks), outside=True), Report((), (), 1.0))


def test_where_the_workers_are_is_told() -> None:
    """In the table, and in the verdict where no rank moves by itself."""
    busy = works(0, Worker(7, READS, None)), works(1, Worker(8, READS, None))

    assert "rank 1 by its worker process 8 at data.py:18; whether these get on, a longer look tells" in said(*busy)
    table = ranks_text(Sighting(tuple(Sighted(each, "n0") for each in busy), 2, "", "", 0.0))
    assert "its worker process 7 at data.py:18" in table


def test_a_rank_that_moves_by_itself_is_at_work() -> None:
    """Then the others' loaders come to their end as well."""
    assert said(works(0), works(1, Worker(8, READS, None))) == (
        "This training does not hang: every rank that was seen is at work."
    )
