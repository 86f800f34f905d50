"""Ranks that average other numbers of times, though all make as many forwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Joined, Position, Site, Stalled

if TYPE_CHECKING:
    from helpers import Script

SOURCE = """\
def train(batches, every):
    for i, x in enumerate(batches):
        last = (i + 1) % every == 0
        with {context}:
            model(x).backward()
        if last:
            opt.step()
    dist.barrier()
"""
UNSYNCED = "contextlib.nullcontext() if last else model.no_sync()"


@pytest.mark.parametrize(
    ("context", "forwards", "named"),
    [(UNSYNCED, (12, 12), True), (UNSYNCED, (11, 12), False), ("autocast()", (12, 12), False)],
    ids=["as many forwards", "fewer", "without no_sync"],
)
def test_no_sync_in_different_steps_is_named(
    script: Script, context: str, forwards: tuple[int, int], *, named: bool
) -> None:
    """Else the loops have different numbers of passes."""
    path = script(SOURCE.format(context=context))
    judge = Dispatcher(CHECKS)
    ranks = []
    for rank, (line, operation) in enumerate(((5, "backward"), (8, "barrier"))):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo")))
        site = Site(path, line, "train")
        recent = (Communication(9, 9.0, operation, "0", "", site),) if operation == "barrier" else ()
        position = Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=site, operation=operation, recent=recent,
            forwards=forwards[rank], steps=4 - rank, stack=(site, Site(path, 9, "<module>")),
        )  # fmt: skip
        ranks.append(position)
    [told] = judge.see(Stalled(pid=0, time=20.0, ranks=tuple(ranks), world_size=2))

    assert told.check.slug == "ranks-diverge"
    assert (
        "enter no_sync() at train.py:4 in different steps" in told.finding.message.replace("script", "train")
    ) is named
