"""A collective that torch passes over on ranks that are not in its group, while those who are wait for each other."""

from __future__ import annotations

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Doing, Joined, PassedOver, Position, Site, Stalled

REDUCES, MEETS = Site("train.py", 10, "main"), Site("train.py", 11, "main")


def said(passed: tuple[int, ...], waiting: tuple[int, ...] = (0, 3)) -> list[tuple[str, str]]:
    """Return what is said of four ranks: some wait in the reduction, the others in the barrier behind it."""
    judge = Dispatcher(CHECKS)
    for rank in range(4):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=4, backend="gloo")))
    for rank in passed:
        list(judge.see(PassedOver(pid=rank + 1, time=2.0, rank=rank, site=REDUCES, operation="all_reduce")))
    ranks = tuple(
        Position(
            rank=rank,
            pid=rank + 1,
            doing=Doing.WAITING,
            seconds=9,
            site=REDUCES if rank in waiting else MEETS,
            operation="all_reduce" if rank in waiting else "barrier",
        )
        for rank in range(4)
    )
    found = judge.see(Stalled(pid=0, time=3.0, ranks=ranks, world_size=4))
    return [(each.check.slug, each.finding.message) for each in found]


def test_ranks_with_the_group_of_others_are_named() -> None:
    """All ranks came to the line, and not all with a group that has them."""
    [(slug, message)] = said(passed=(1, 2))

    assert slug == "ranks-diverge"
    assert message.startswith("rank 0 waits in all_reduce at train.py:10; ranks 1, 2 called it there with a group that")


@pytest.mark.parametrize("passed", [(), (2,)], ids=["nobody was passed over", "a member did not come"])
def test_where_a_member_can_be_missing_the_group_is_not_blamed(passed: tuple[int, ...]) -> None:
    """Ranks that are rightly outside of a group may call its collectives: torch passes them over."""
    assert not any("with a group" in message for _, message in said(passed))
