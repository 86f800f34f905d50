"""A rank that waits in a helper which another one has left above the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.absent.diverged.ranks_diverge import while_training
from ddpdoctor.watch.events import Communication, Doing, Position, Site, Stalled
from ddpdoctor.watch.training import Training

HELPER = """def words():
    if rank == 0:
        return load()
    {more}
    broadcast(box)
    return box

"""
STRAIGHT = "def main():\n    x = words()\n    wrap(x)\n"
LOOP = "def main():\n    for _ in x: words()\n    wrap(x)\n"


@pytest.mark.parametrize(
    ("more", "main", "named"),
    [("pass", STRAIGHT, True), ("if x: return", STRAIGHT, False), ("pass", LOOP, False)],
    ids=["one return", "two", "in a loop"],
)
def test_the_return_above_the_call_is_named(tmp_path: Path, more: str, main: str, *, named: bool) -> None:
    """It is the only way past the call; in a loop the other rank can be a step behind."""
    file = tmp_path / "train.py"
    file.write_text(HELPER.format(more=more) + main)

    def at(line: int, function: str) -> Site:
        return Site(str(file), line, function)

    stacks = (at(10, "main"),), (at(5, "words"), at(9, "main"))
    ranks = tuple(
        Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, operation=("all_gather", "broadcast")[rank],
            site=stack[0], stack=stack,
            recent=(Communication(1, 1.0, "x", "", "", stack[0]),),
        )
        for rank, stack in enumerate(stacks)
    )  # fmt: skip
    (finding,) = while_training.examine(Stalled(pid=0, time=9.0, ranks=ranks, world_size=2), Training())

    said = "rank 0 has left words() before that, by `return` at line 3, under `if rank == 0`"
    assert (said in finding.message) is named
    assert (finding.place.line == 3) is named
