"""Groups that the ranks make in other orders."""

from __future__ import annotations

import pytest

from ddpdoctor.checks.collectives.hangs._compared import first_mismatch
from ddpdoctor.checks.collectives.hangs._hangs import Hang, hang_of
from ddpdoctor.watch.events import Communication, Doing, Position, Site, Stalled
from ddpdoctor.watch.training import Training


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
