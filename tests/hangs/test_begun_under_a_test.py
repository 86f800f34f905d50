"""A rank that waits by its handle for what it began before, in a loop that all ranks have left or gone on from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Position, Site, Stalled

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

TRAIN = """\
import torch.distributed as dist

def track(step, loss):
    if step % 5 == 0 or loss > 3 * last:
        handles.append(dist.all_reduce(loss, group=group, async_op=True))

def flush():
    for handle in handles:
        handle.wait()

def main():
    for epoch in range(3):
        for step in range(12):
            loss.backward()
            track(step, loss)
        flush()

main()
"""
BEGINS, WAITS, BACKWARD, FLUSHES = 5, 9, 14, 16


def told(tmp_path: Path, counts: tuple[int, int] | None) -> Finding:
    """Return what is said where the ranks have begun so many; None where that is not known."""
    path = tmp_path / "train.py"
    path.write_text(TRAIN, encoding="utf-8")
    begins, waits, backward, flushes = (
        Site(str(path), line, name)
        for line, name in ((BEGINS, "track"), (WAITS, "flush"), (BACKWARD, "main"), (FLUSHES, "main"))
    )
    calls = [
        tuple(Communication(each, float(each), "all_reduce", "1", "[1]", begins) for each in range(1, count + 1))
        for count in counts or (0, 0)
    ]
    ranks = (
        Position(
            rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=backward, operation="backward", recent=calls[0],
            stack=(backward,),
        ),
        Position(
            rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=waits, operation="Work.wait of all_reduce",
            recent=calls[1], stack=(waits, flushes),
        ),
    )  # fmt: skip
    (found,) = Dispatcher(CHECKS).see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2))
    assert found.check.slug == "ranks-diverge"
    return found.finding


def test_the_test_that_one_rank_alone_passed_is_named(tmp_path: Path) -> None:
    """It has begun one more of its group: where it waits for that says nothing of a call that it left out."""
    found = told(tmp_path, (7, 8))

    assert "begun at train.py:5, which is reached where `step % 5 == 0 or loss > 3 * last`; rank 0 " in found.message
    assert found.place.line == BEGINS
    assert "has made a call of it less" not in found.message


def test_without_counts_no_rank_is_blamed(tmp_path: Path) -> None:
    """As seen from outside: both lines, and no word of a call left out, nor of how often the loop runs."""
    found = told(tmp_path, None)

    assert found.message == (
        "the ranks wait for each other in different places: rank 0 in backward at train.py:14; rank 1 in Work.wait of "
        "all_reduce at train.py:9"
    )
