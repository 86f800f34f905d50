"""A message more is waited for than was sent: both counts are known from what Python has begun."""

from __future__ import annotations

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Joined, Position, Site, Stalled

SENDS, MEETS, TAKES = (Site("train.py", line, "main") for line in (5, 20, 10))


def calls(operation: str, count: int, site: Site) -> tuple[Communication, ...]:
    """Make so many messages between rank 0 and rank 1."""
    peer = "[4] to 1" if operation == "send" else "[4] from 0"
    return tuple(Communication(number, float(number), operation, "0", peer, site) for number in range(1, count + 1))


def said(sent: int, received: int, *, past: bool = True) -> list[tuple[str, str]]:
    """Return what is said of rank 1, which waits in its last receive, and of rank 0 behind its sends or in one."""
    judge = Dispatcher(CHECKS)
    for rank in range(2):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo")))
    meets = (Communication(sent + 1, 99.0, "barrier", "0", "", MEETS),) if past else ()
    ranks = (
        Position(
            rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=MEETS if past else SENDS,
            operation="barrier" if past else "send", recent=calls("send", sent, SENDS) + meets,
        ),
        Position(
            rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=TAKES, operation="recv",
            recent=calls("recv", received, TAKES),
        ),
    )  # fmt: skip
    found = judge.see(Stalled(pid=0, time=200.0, ranks=ranks, world_size=2))
    return [(each.check.slug, each.finding.message) for each in found]


def test_both_counts_are_named() -> None:
    """Which side counts wrongly is the user's to say."""
    assert said(sent=4, received=5) == [
        (
            "receive-deadlock",
            "rank 1 waits at train.py:10 for message 5 of rank 0, which has sent 4 and waits in barrier at train.py:20",
        )
    ]


@pytest.mark.parametrize(
    ("sent", "received", "past"), [(5, 5, True), (4, 5, False), (64, 64, True)], ids=["alike", "in a send", "too many"]
)
def test_where_the_counts_prove_nothing_they_are_not_named(sent: int, received: int, *, past: bool) -> None:
    """A message can be on its way; and of a long run only the last calls are known."""
    assert not any("for message" in message for _, message in said(sent, received, past=past))
