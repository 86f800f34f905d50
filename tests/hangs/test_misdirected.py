"""A rank that waits for a message of a rank which sends it none, while another one sends it one that it never takes."""

from __future__ import annotations

from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Joined, Position, Site, Stalled

AT = Site("ring.py", 20, "ring")


def said(*messages: tuple[tuple[str, int], ...]) -> list[str]:
    """Return what is said of ranks that have begun these sends and receives, and wait in the last receive."""
    judge = Dispatcher(CHECKS)
    ranks = []
    for rank, each in enumerate(messages):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=len(messages), backend="gloo")))
        recent = tuple(
            Communication(number, float(number), way, "0", f"[4] {'to' if way == 'send' else 'from'} {peer}", AT)
            for number, (way, peer) in enumerate(each, 1)
        )
        ranks.append(
            Position(
                rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=AT, operation="Work.wait of recv",
                recent=recent,
            )
        )  # fmt: skip
    found = judge.see(Stalled(pid=0, time=200.0, ranks=tuple(ranks), world_size=len(messages)))
    return [each.finding.message for each in found]


def test_the_rank_that_asks_the_wrong_one_is_named() -> None:
    """In a ring of three, the last one receives from the first."""
    [message] = said(
        (("send", 1), ("recv", 2), ("send", 1), ("recv", 2)),
        (("send", 2), ("recv", 0)),
        (("send", 0), ("recv", 0)),
    )

    assert message == (
        "rank 2 waits at ring.py:20 for a message of rank 0, which has sent none that it has not taken, and rank 1 "
        "sends it a message that it does not take"
    )


def test_ranks_that_all_receive_first_are_told_as_before() -> None:
    """Nobody has sent: no message is taken by nobody."""
    [message] = said((("recv", 2),), (("recv", 0),), (("recv", 1),))

    assert message.startswith("no message is on its way")
