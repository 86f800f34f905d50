"""A message more is waited for than was sent: both counts are known from what Python has begun."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(("sent", "taken", "found"), [(5, 4, True), (1, 0, True), (4, 4, False), (61, 60, False)])
def test_a_message_that_nobody_takes(sent: int, taken: int, *, found: bool) -> None:
    """The other rank has received fewer, and is in a collective; of a long run only the last calls are known."""
    judge = Dispatcher(CHECKS)
    meets = Communication(taken + 1, 99.0, "barrier", "0", "", MEETS)
    ranks = (
        Position(
            rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=SENDS, operation="send",
            recent=calls("send", sent, SENDS),
        ),
        Position(
            rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=MEETS, operation="barrier",
            recent=(*calls("recv", taken, TAKES), meets),
        ),
    )  # fmt: skip

    said = [each.finding.message for each in judge.see(Stalled(pid=0, time=200.0, ranks=ranks, world_size=2))]

    assert any(f"to take message {sent}: that has received {taken}" in each for each in said) is found


HALO = """\
def exchange(ops):
    for work in dist.batch_isend_irecv(ops):
        work.wait()

def step(x):
    exchange(x)
    loss.backward()
"""


def test_several_ranks_in_messages_and_one_in_a_collective(tmp_path: Path) -> None:
    """As seen from outside: the loop over what was posted says nothing of who left it early."""
    (tmp_path / "halo.py").write_text(HALO, encoding="utf-8")
    posts, caller, backward = (
        Site(str(tmp_path / "halo.py"), *at) for at in ((3, "exchange"), (6, "step"), (7, "step"))
    )
    first = Position(
        rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=backward, operation="backward", stack=(backward,)
    )
    others = (
        Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=posts,
            operation="Work.wait of batch_isend_irecv", stack=(posts, caller),
        )
        for rank in (1, 2)
    )  # fmt: skip
    (found,) = Dispatcher(CHECKS).see(Stalled(pid=0, time=200.0, ranks=(first, *others), world_size=3))

    assert found.check.slug == "receive-deadlock"
    assert "rank 0 waits in backward at halo.py:7" in found.finding.message
    assert "one neighbour" in found.finding.fix.summary


def test_where_none_was_sent_no_count_is_to_be_sent_first() -> None:
    """The rank that is waited for has no line for it, or has not come there."""
    judge = Dispatcher(CHECKS)
    meets = (Communication(1, 99.0, "barrier", "0", "", MEETS),)
    ranks = (
        Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=MEETS, operation="barrier", recent=meets),
        Position(
            rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=TAKES, operation="recv", recent=calls("recv", 1, TAKES)
        ),
    )
    (found,) = judge.see(Stalled(pid=0, time=200.0, ranks=ranks, world_size=2))

    assert "for message 1 of rank 0, which has sent 0" in found.finding.message
    assert "leave the message out on both" in found.finding.fix.summary


def row(rank: int, *made: tuple[str, int, int]) -> Position:
    """Return a rank of two that waits in its last receive; ``made`` are operation, line and how often, in order."""
    way = {"send": f"[4] to {1 - rank}", "recv": f"[4] from {1 - rank}"}
    each = [(operation, line) for operation, line, count in made for _ in range(count)]
    recent = tuple(
        Communication(number, float(number), operation, "0", way[operation], Site("train.py", line, "main"))
        for number, (operation, line) in enumerate(each, 1)
    )
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=recent[-1].site, operation="recv", recent=recent
    )


@pytest.mark.parametrize(
    ("zero", "one", "told"),
    [
        ([("send", 5, 4), ("recv", 9, 4), ("send", 5, 3), ("recv", 9, 1)],
         [("recv", 20, 4), ("send", 24, 4), ("recv", 20, 4)], True),
        ([("recv", 9, 1)], [("recv", 20, 1)], False),
        ([("send", 5, 1), ("recv", 9, 1)], [("recv", 20, 2)], False),
    ],
    ids=["a micro-batch left out", "both receive first", "one message"],
)  # fmt: skip
def test_a_row_of_messages_that_is_one_longer_on_one_side(
    zero: list[tuple[str, int, int]], one: list[tuple[str, int, int]], *, told: bool
) -> None:
    """Both wait in recv: the one for a message more than was sent in a row, the other one for its answer."""
    ranks = row(0, *zero), row(1, *one)
    (found,) = Dispatcher(CHECKS).see(Stalled(pid=0, time=200.0, ranks=ranks, world_size=2))

    assert found.check.slug == "receive-deadlock"
    said = "for message 4 in a row of rank 0, which has sent 3 at train.py:5, and waits for the answer"
    assert (said in found.finding.message) == told, found.finding.message
