"""Two ranks that both wait to receive: two loops that are to exchange as many messages, and the wrong order of two."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Doing, Position, Site, Stalled

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

STAGES = """
    def first(batch):
        for part in batch.chunk(8):
            dist.send(model(part), dst=1)
        for part in parts:
            dist.recv(grad, src=1)  # zero

    def second():
        for _ in range(8):
            dist.recv(part, src=0)  # one
        for grad in grads:
            dist.send(grad, dst=0)
    """
FIRST = """
    def exchange(rank):
        dist.recv(theirs, src=1 - rank)  # zero one
        dist.send(mine, dst=1 - rank)
    """
BRANCHES = """
    if rank == 1:
        dist.recv(theirs, src=0)  # one
        dist.send(mine, dst=0)
    else:
        dist.recv(theirs, src=1)  # zero
        dist.send(mine, dst=1)
    """
SENT = """
    def exchange(rank):
        for item in items:
            dist.send(item, dst=1 - rank)
            dist.recv(theirs, src=1 - rank)  # zero one
    """


def told(tmp_path: Path, text: str) -> Finding:
    """Return what is said of two ranks that wait at the marked lines, seen from outside."""
    path = tmp_path / "train.py"
    path.write_text(dedent(text), encoding="utf-8")
    lines = path.read_text(encoding="utf-8").splitlines()
    sites = [
        Site(str(path), next(number for number, line in enumerate(lines, 1) if mark in line.partition("#")[2]), "f")
        for mark in ("zero", "one")
    ]
    ranks = tuple(
        Position(rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=site, operation="recv", stack=(site,))
        for rank, site in enumerate(sites)
    )
    (found,) = Dispatcher(CHECKS).see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2, outside=True))
    assert found.check.slug == "receive-deadlock"
    return found.finding


def test_both_loops_are_named_where_one_has_more_passes(tmp_path: Path) -> None:
    """And that chunk() returns fewer parts than it is asked for; another order of the calls mends nothing."""
    found = told(tmp_path, STAGES)

    assert "has left the loop of its sends at train.py:3, `for part in batch.chunk(8)`" in found.message
    assert "in its loop at train.py:9, `for _ in range(8)`" in found.message
    assert found.evidence[0].seen.startswith("batch.chunk(8) returns fewer parts")
    assert "batch_isend_irecv" not in (found.fix.diff or "")


@pytest.mark.parametrize("text", [FIRST, BRANCHES], ids=["one line", "two branches"])
def test_who_receives_first_is_to_send_first(tmp_path: Path, text: str) -> None:
    """A send in the branch of the other rank came before nothing."""
    found = told(tmp_path, text)

    assert found.message.startswith("no message is on its way")
    assert "batch_isend_irecv" in (found.fix.diff or "")
    assert found.ambiguity is None


def test_the_order_is_no_cause_where_each_has_sent(tmp_path: Path) -> None:
    """Then counts, tags and peers remain."""
    found = told(tmp_path, SENT)

    assert found.ambiguity is not None
    assert "batch_isend_irecv" not in (found.fix.diff or "")
