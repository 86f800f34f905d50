"""Ranks that wait at one line in several groups, each for another one that waits in another group."""

from __future__ import annotations

import pytest

from ddpdoctor.checks.collectives.hangs._hangs import hang_of
from ddpdoctor.checks.collectives.hangs._kinds import Hang
from ddpdoctor.checks.collectives.unequal.collective_order_mismatch import while_training
from ddpdoctor.watch.events import Communication, Doing, Position, Site, Stalled
from ddpdoctor.watch.training import Training

SITE = Site("/home/user/halo.py", 24, "exchange")
PAIRS = ("[0, 1]", "[1, 2]", "[0, 2]")


def waits(rank: int, group: str, *before: str) -> Position:
    """Return a rank that waits in a group, after one call in each of others; all have made the three groups."""
    made = [Communication(at, 1.0, "new_group", "new groups", each, SITE) for at, each in enumerate(PAIRS, 1)]
    called = [Communication(1, 2.0, "all_reduce", each, "[16]", SITE) for each in (*before, group)]
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, operation="all_reduce", site=SITE,
        recent=(*made, *called), stack=(SITE,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "circle"),
    [(("3", "1", "2"), True), (("1", "2", "3"), True), (("1", "1", "2"), False), (("9", "8", "7"), False)],
    ids=["to the left", "to the right", "two are in one", "groups of others"],
)
def test_a_circle_is_told_by_the_members_of_the_groups(groups: tuple[str, ...], *, circle: bool) -> None:
    """Where two are in the group that both belong to, nothing is known of why; nor in groups that nobody has told."""
    ranks = tuple(waits(rank, group) for rank, group in enumerate(groups))
    event = Stalled(pid=0, time=9.0, ranks=ranks, world_size=3)

    assert (hang_of(event, Training()) is Hang.ORDER) is circle
    if circle:
        (found,) = while_training.examine(event)
        assert "the ranks wait for each other in a circle, in all_reduce at halo.py:24" in found.message
        assert found.message.count("for rank") == 3
        assert "one order" in found.fix.summary


def test_who_has_made_the_call_before_is_not_awaited() -> None:
    """Rank 2 is past the group of 1 and 2, and rank 0 past that of 0 and 2."""
    ranks = waits(0, "1", "3"), waits(1, "2"), waits(2, "3", "2")
    assert hang_of(Stalled(pid=0, time=9.0, ranks=ranks, world_size=3), Training()) is not Hang.ORDER
