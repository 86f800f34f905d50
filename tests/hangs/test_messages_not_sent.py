"""Two ranks that both receive: a tag that differs, or the line of a send that one of them has passed by."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Joined, Position, Site, Stalled

STAGES = """
import torch.distributed as dist
def backward(rank, training):
    for batch in loader:
        if rank == 0:
            dist.send(batch, 1)
            dist.recv(batch, 1)
        else:
            dist.recv(batch, 0)
            if {test}:
                dist.send(batch, 0)
"""
SEND, RETURNED, TAKES, PASSED = 6, 7, 9, 11


def called(number: int, operation: str, what: str, site: Site) -> Communication:
    """Return a call of a rank."""
    return Communication(number, float(number), operation, "0", f"[4] {what}", site)


def told(*ranks: tuple[Communication, ...], operation: str = "recv") -> list[tuple[str, str, int | None]]:
    """Return what is said of ranks that wait in the last of their calls."""
    judge = Dispatcher(CHECKS)
    for rank in range(len(ranks)):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=len(ranks), backend="gloo")))
    stand = tuple(
        Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=calls[-1].site, operation=operation,
            recent=calls, stack=(calls[-1].site,) if calls[-1].site else (),
        )
        for rank, calls in enumerate(ranks)
    )  # fmt: skip
    found = judge.see(Stalled(pid=0, time=200.0, ranks=stand, world_size=len(ranks)))
    return [(each.check.slug, each.finding.message, each.finding.place.line) for each in found]


@pytest.mark.parametrize("test", ["training", "rank == 1 and training"])
def test_a_send_that_is_passed_by_is_named_with_its_test(tmp_path: Path, test: str) -> None:
    """It is the one line of the loop that sends, and that the rank has not run; the other branch is not its own."""
    path = tmp_path / "stages.py"
    path.write_text(STAGES.format(test=test))
    sends, returned, takes = (Site(str(path), line, "backward") for line in (SEND, RETURNED, TAKES))
    first = (called(1, "send", "to 1", sends), called(2, "recv", "from 1", returned))
    second = (called(1, "recv", "from 0", takes), called(2, "recv", "from 0", takes))
    ((slug, message, line),) = told(first, second)

    assert (slug, line) == ("receive-deadlock", PASSED)
    assert f"has passed by the line that sends one, stages.py:{PASSED}, under `if {test}`" in message


def test_a_send_of_an_earlier_pass_is_passed_by_in_this_one(tmp_path: Path) -> None:
    """Between two calls of the rank that stand around it."""
    path = tmp_path / "stages.py"
    path.write_text(STAGES.format(test="training") + "            dist.recv(batch, 0)\n")
    sends, returned, takes, passed = (Site(str(path), line, "backward") for line in (SEND, RETURNED, TAKES, PASSED))
    again = Site(str(path), PASSED + 1, "backward")
    first = (called(1, "send", "to 1", sends), called(2, "recv", "from 1", returned))
    second = (called(1, "recv", "from 0", takes), called(2, "send", "to 0", passed), called(3, "recv", "from 0", again))
    assert "passed by" not in told(first, second)[0][1]
    passes = (*second, called(4, "recv", "from 0", takes), called(5, "recv", "from 0", again))
    ((_, message, line),) = told(first, passes)

    assert line == PASSED
    assert "under `if training`" in message


def test_a_send_that_was_made_once_is_not_passed_by(tmp_path: Path) -> None:
    """Then the order of the calls is at fault, or their number."""
    path = tmp_path / "stages.py"
    path.write_text(STAGES.format(test="training"))
    sends, returned, takes, passed = (Site(str(path), line, "backward") for line in (SEND, RETURNED, TAKES, PASSED))
    first = (
        called(1, "send", "to 1", sends),
        called(2, "recv", "from 1", returned),
        called(3, "recv", "from 1", returned),
    )
    second = (
        called(1, "recv", "from 0", takes),
        called(2, "send", "to 0", passed),
        called(3, "recv", "from 0", takes),
    )
    ((slug, message, _),) = told(first, second)

    assert slug == "receive-deadlock"
    assert "passed by" not in message


def test_tags_that_differ_are_named_where_others_were_called_since() -> None:
    """Of all that was begun, the first message that nobody sends and one that nobody takes."""
    takes, sends, later = (Site("ring.py", line, "main") for line in (9, 13, 16))
    first = (called(1, "recv", "from 1", takes), called(2, "send", "to 1", later))
    second = (called(1, "send", "to 0, tag 1", sends), called(2, "recv", "from 0", later))
    ((slug, message, line),) = told(first, second, operation="Work.wait of recv")

    assert (slug, line) == ("receive-deadlock", 9)
    assert message == "rank 1 sends to rank 0 with tag 1 at ring.py:13, and rank 0 waits for tag 0 at ring.py:9"
