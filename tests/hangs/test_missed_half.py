"""Rank 0 passes its half of "one rank first" without the call, since that stands under a condition more."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Joined, Position, Site, Stalled

SCRIPT = """
import torch.distributed as dist

def load(evaluate=False):
    if dist.get_rank() != 0:
        dist.barrier()  # others
    data = read()
    if dist.get_rank() == 0 and not evaluate:
        dist.barrier()  # first
    return data

def main():
    load()
    train()
    load(evaluate=True)  # calls
    dist.all_reduce(score)  # past

main()
"""


@pytest.mark.parametrize(
    ("first", "others", "at", "found"), [(1, 2, "past", True), (2, 2, "past", False), (1, 2, "calls", False)]
)
def test_the_half_that_was_not_called(tmp_path: Path, first: int, others: int, at: str, *, found: bool) -> None:
    """Where rank 0 has made fewer calls in its half, and is past the function; not while it can still come."""
    (path := tmp_path / "train.py").write_text(SCRIPT)
    lines = {text.partition("# ")[2]: number for number, text in enumerate(SCRIPT.splitlines(), 1)}
    file, end = str(path), len(SCRIPT.splitlines())
    site = {name: Site(file, line, "load" if name in {"first", "others"} else "main") for name, line in lines.items()}
    module = Site(file, end, "<module>")

    def calls(name: str, count: int) -> tuple[Communication, ...]:
        return tuple(
            Communication(number, float(number), "barrier", "0", "", site[name]) for number in range(1, count + 1)
        )

    ahead = Communication(first + 1, 9.0, "all_reduce", "0", "[1]", site[at])
    ranks = (
        Position(
            rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=site[at], operation="all_reduce",
            recent=(*calls("first", first), ahead), stack=(site[at], module),
        ),
        Position(
            rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=site["others"], operation="barrier",
            recent=calls("others", others), stack=(site["others"], site["calls"], module),
        ),
    )  # fmt: skip
    judge = Dispatcher(CHECKS)
    for rank in (0, 1):
        list(judge.see(Joined(pid=rank + 1, time=0.1, rank=rank, world_size=2, backend="gloo")))

    said = [each.finding.message for each in judge.see(Stalled(pid=0, time=20.0, ranks=ranks, world_size=2))]

    assert any("rank 0 has called that 1 of 2 times" in each for each in said) is found
