"""Groups that the ranks make in other orders, that some of them do not make, and that they use in other orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks.collectives.hangs._hangs import hang_of
from ddpdoctor.checks.collectives.hangs._kinds import Hang
from ddpdoctor.checks.collectives.hangs.calls._compared import first_mismatch
from ddpdoctor.registry import load_checks
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Ended, GroupMade, Joined, Left, Position, Site, Stalled
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from helpers import Script

CHECKS = load_checks()


def waiting(rank: int, *layouts: str) -> Position:
    """Return a rank that waits in new_group, and has made groups of these ranks."""
    site = Site("/home/user/train.py", 9, "main")
    made = tuple(
        Communication(number, 0.0, "new_group", "new groups", ranks, site) for number, ranks in enumerate(layouts, 1)
    )
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9.0, site=site, operation="new_group", stack=(site,),
        recent=made,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "differs"),
    [
        (("[0, 1]", "[0]"), ("[0]", "[0, 1]"), True),
        (("[0]", "[0, 1]"), ("[0]", "[0, 1]"), False),
        (("all ranks",), ("[1]",), True),
        (("[0, 1]",), ("[2, 3]",), False),  # each makes its own alone
    ],
)
def test_the_order_counts_where_the_groups_share_a_rank(
    ours: tuple[str, ...],
    theirs: tuple[str, ...],
    differs: bool,  # noqa: FBT001 - of a test
) -> None:
    """Ranks that make their own group alone, and no other, are let pass by the newer versions of torch."""
    ranks = (waiting(0, *ours), waiting(1, *theirs))
    event = Stalled(pid=0, time=0.0, ranks=ranks, world_size=2)

    assert (first_mismatch(ranks) is not None) is differs
    assert (hang_of(event, Training()) is Hang.ORDER) is differs


def training(*made: tuple[str, ...], ended: int | None = None) -> Training:
    """Return a training whose ranks have made these groups; so many of them have come to their end."""
    found = Training()
    site = Site("/home/user/train.py", 9, "main")
    for rank, layouts in enumerate(made):
        found.add(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=len(made), backend="gloo"))
        for ranks in layouts:
            found.add(GroupMade(pid=rank + 1, time=2.0, rank=rank, ranks=ranks, site=site))
        if rank < (len(made) if ended is None else ended):
            found.add(Left(pid=rank + 1, time=3.0, rank=rank, ended=True))
    return found


def told(found: Training, status: int = 0) -> list[str]:
    """Ask all checks at the end of the command; return what is said of groups."""
    ended = Ended(pid=0, time=9.0, status=status)
    said = Dispatcher(CHECKS).see_of(found, ended)
    return [each.finding.message for each in said if "new_group" in each.finding.message]


def test_a_group_that_some_ranks_made_is_told_at_the_end() -> None:
    """Torch lets it pass, and numbers the next group otherwise on the ranks that left the call out."""
    [said] = told(training(("[0, 1]",), ("[0, 1]",), ()))

    assert said.startswith("new_group([0, 1]) at train.py:9: ranks 0, 1 have called it, rank 2 not")


@pytest.mark.parametrize(
    ("made", "ended", "status"),
    [
        ((("[0, 1]",), ("[0, 1]",), ("[0, 1]",)), None, 0),
        ((("[0, 1]",), ("[0, 1]",), ("[2, 3]",), ("[2, 3]",)), None, 0),  # each its own, and as many: names agree
        ((("[0]", "[0, 1]"), ("[1]", "[0, 1]")), None, 0),
        ((("[0, 1]",), ("[0, 1]",), ()), 2, 0),  # one is not at its end: it may come to make it
        ((("[0, 1]",), ("[0, 1]",), ()), None, 1),
    ],
)
def test_of_groups_that_all_made_or_of_a_training_that_failed_nothing_is_told(
    made: tuple[tuple[str, ...], ...], ended: int | None, status: int
) -> None:
    """Nor where each rank made a group of its own: the names of those that come next agree."""
    assert told(training(*made, ended=ended), status) == []


TWO = """\
if rank == 0:
    dist.all_reduce(x, group=first)
    dist.broadcast(x, 0, group=second)
else:
    dist.broadcast(x, 0, group=second)
    dist.all_reduce(x, group=first)
dist.barrier()
"""


def in_group(path: str, rank: int, line: int, *calls: tuple[str, str, int]) -> Position:
    """Return a rank that waits at a line: in the last of its calls, each an operation, its group and its number."""
    site = Site(path, line, "<module>")
    recent = tuple(Communication(number, 1.0, operation, group, "[1]", site) for operation, group, number in calls)
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9.0, site=site, operation=calls[-1][0], stack=(site,),
        recent=recent,
    )  # fmt: skip


def test_two_groups_in_two_orders_are_told_as_that(script: Script) -> None:
    """And not as a collective that one rank alone calls, since the other branch has it as well."""
    path = script(TWO)
    zero = in_group(path, 0, 2, ("all_reduce", "1", 1))
    one = in_group(path, 1, 5, ("broadcast", "2", 1))
    event = Stalled(pid=0, time=0.0, ranks=(zero, one), world_size=2)
    [found] = Dispatcher(CHECKS).see_of(Training(), event)

    assert found.check.slug == "collective-order-mismatch"
    assert "each for the other, which has not come there" in found.finding.message


@pytest.mark.parametrize(
    ("world_size", "one"),
    [(3, ("broadcast", "2", 1)), (2, ("barrier", "1", 1))],
    ids=["a group may be without the other rank", "one group"],
)
def test_where_the_groups_may_have_no_rank_in_common_no_order_is_told(
    script: Script, world_size: int, one: tuple[str, str, int]
) -> None:
    """With more than two ranks, a call in the other one's group shows that a rank is in it."""
    path = script(TWO)
    ranks = (in_group(path, 0, 2, ("all_reduce", "1", 1)), in_group(path, 1, 5, one))
    event = Stalled(pid=0, time=0.0, ranks=ranks, world_size=world_size)

    assert all("each for the other" not in each.finding.message for each in Dispatcher(CHECKS).see(event))
