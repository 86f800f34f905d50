"""Loops that make a collective in each pass, over what each rank has of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Failed, Joined, PeerLost, Position, Progress, Site, Stalled

SCRIPT = """\
import torch.distributed as dist
def accuracy(val):
    for batch in val:
        {body}
        dist.all_reduce(count)
    {behind}
    return count

for epoch in range(3):
    accuracy(share)
    dist.barrier()
"""
LOOP, CALL, BEHIND, OUTSIDE = 3, 5, 6, 11
SAID = "rank 0 calls all_reduce at val.py:5 once more than rank 1, in the loop at val.py:3, `for batch in val`"


def calls(file: str, *made: tuple[str, int, str]) -> tuple[Communication, ...]:
    """Return the calls of a rank: what, at which line of which function."""
    return tuple(
        Communication(number, float(number), operation, "0", "", Site(file, line, function))
        for number, (operation, line, function) in enumerate(made, 1)
    )  # fmt: skip


def waits(rank: int, made: tuple[Communication, ...]) -> Position:
    """Return a rank that waits in its last call."""
    last = made[-1]
    assert last.site is not None
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=last.site, operation=last.operation, recent=made,
        stack=(last.site,),
    )  # fmt: skip


IN_LOOP = ("all_reduce", CALL, "accuracy")
MORE = (IN_LOOP, IN_LOOP, IN_LOOP)


def told(
    path: Path, last: tuple[str, int, str], *, first: int = 2, lost: bool = False
) -> list[tuple[str, str, int | None]]:
    """Ask all checks: rank 0 is in its third pass, rank 1 after so many of them at ``last``."""
    file = str(path)
    recent = calls(file, *MORE), calls(file, *[IN_LOOP] * first, last)
    judge = Dispatcher(CHECKS)
    for rank in range(2):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo")))
    if lost:
        progress = tuple(Progress(rank=rank, forwards=0, recent=made) for rank, made in enumerate(recent))
        event = PeerLost(pid=0, time=2.0, first=None, others=(), gone=(0, 1), progress=progress)
        found = list(judge.see_of(judge.trainings.of(1), event))
    else:
        ranks = tuple(waits(rank, made) for rank, made in enumerate(recent))
        found = list(judge.see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2)))
    assert judge.crashes == []
    return [(each.check.slug, each.finding.message, each.finding.place.line) for each in found]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a validation with such a loop."""
    path = tmp_path / "val.py"
    path.write_text(SCRIPT.format(body="count = good(batch)", behind="dist.reduce(total, 0)"), encoding="utf-8")
    return path


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    "last", [("barrier", OUTSIDE, "<module>"), ("reduce", BEHIND, "accuracy")], ids=["caller", "function"]
)
def test_the_loop_is_named_that_has_more_passes_on_one_rank(
    script: Path, last: tuple[str, int, str], *, lost: bool
) -> None:
    """In a hang, and where gloo has ended a rank over it; the other rank is behind the loop or its caller's line."""
    assert [(slug, line) for slug, message, line in told(script, last, lost=lost) if message.startswith(SAID)] == [
        ("loop-left-early", LOOP)
    ]


@pytest.mark.parametrize(
    ("body", "last", "first"),
    [
        ("if batch.any():", ("barrier", OUTSIDE, "<module>"), 2),
        ("count = good(batch)", ("barrier", OUTSIDE, "<module>"), 0),
        ("count = good(batch)", ("barrier", 2, "other"), 2),
    ],
    ids=["under a test", "never in the loop", "elsewhere"],
)
def test_a_loop_is_not_blamed_where_something_else_can_differ(
    tmp_path: Path, body: str, last: tuple[str, int, str], first: int
) -> None:
    """A call under a test of its own, a rank that was not in the loop, or that can still be in it."""
    path = tmp_path / "val.py"
    indented = "    " if body.startswith("if") else ""
    text = SCRIPT.format(body=body, behind="pass").replace(
        "        dist.all_reduce", f"        {indented}dist.all_reduce"
    )
    path.write_text(text, encoding="utf-8")

    assert all(slug != "loop-left-early" for slug, _, _ in told(path, last, first=first))


@pytest.mark.parametrize(
    ("body", "first", "at", "blamed"),
    [
        ("count = good(batch)", 2, 20, True),
        ("count = good(batch)", 2, CALL, False),
        ("count = good(batch)", 3, 20, False),
        ("if batch.any():", 2, 20, False),
    ],
    ids=["behind the loop", "still in it", "as many passes", "under a test"],
)
def test_what_ddp_exchanges_by_itself_is_behind_the_loop_as_well(
    tmp_path: Path, body: str, first: int, at: int, *, blamed: bool
) -> None:
    """It has no number among the calls: what counts is that the rank that lost the other one is out of the loop."""
    path = tmp_path / "val.py"
    indented = "    " if body.startswith("if") else ""
    text = SCRIPT.format(body=body, behind="pass").replace(
        "        dist.all_reduce", f"        {indented}dist.all_reduce"
    )
    path.write_text(text, encoding="utf-8")
    recent = calls(str(path), *MORE), calls(str(path), *[IN_LOOP] * first)
    judge = Dispatcher(CHECKS)
    for rank in range(2):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo")))
    site = Site(str(path), at, "accuracy" if at == CALL else "train_step")
    error = Failed(pid=2, time=2.0, rank=1, site=site, error="RuntimeError", text="Connection closed by peer")
    progress = tuple(Progress(rank=rank, forwards=9 + rank, recent=made) for rank, made in enumerate(recent))
    event = PeerLost(pid=0, time=2.0, first=None, others=(error,), gone=(0,), progress=progress, stack=(site,))
    found = [each.finding for each in judge.see_of(judge.trainings.of(1), event)]

    assert judge.crashes == []
    assert any(each.message.startswith(SAID) for each in found) is blamed
    assert not blamed or "has left it, and is in DDP's own exchange at val.py:20" in found[0].message
