"""A loop over epochs that each rank begins at what it has found for itself, and the ways out of one that was left."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.source.reach.exits import loop_left
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    Communication,
    Doing,
    EpochStarted,
    Failed,
    Joined,
    Left,
    PeerLost,
    Position,
    Progress,
    Site,
    Stalled,
)

TRAIN = """
import argparse

def main():
    args = argparse.ArgumentParser().parse_args()
{given}
    for epoch in range(start, 5):
        for step in range(6):
            model(batch).sum().backward()  # inside
    dist.barrier()  # outside

main()
"""
BEGINS = {
    "a checkpoint of its own": ("    start = resume(folder, model)", True),
    "an entry of a checkpoint": ("    start = state['epoch'] + 1", True),
    "a literal": ("    start = 0", False),
    "an option": ("    start = args.start_epoch", False),
    "a number of an option": ("    start = int(args.start_epoch)", False),
}

RUN = """
class Run:
    def __init__(self, state, args):
        self.start = 0
{given}

    def train(self):
        for epoch in range(self.start, 5):
            for step in range(6):
                model(batch).sum().backward()  # inside
        dist.barrier()  # outside

Run(state, args).train()
"""
OF_A_RUN = {
    "a checkpoint of its own": (
        "        if os.path.isfile(path):\n            self.start = torch.load(path)['epoch']",
        True,
    ),
    "a literal": ("        self.epochs = 5", False),
    "an argument": ("        self.start = args.start", False),
}


def line(path: Path, mark: str) -> int:
    """Return the number of the line that is marked."""
    return next(number for number, each in enumerate(path.read_text().splitlines(), 1) if f"# {mark}" in each)


@pytest.mark.parametrize(("given", "apart"), [pytest.param(*each, id=name) for name, each in BEGINS.items()])
def test_a_loop_that_begins_elsewhere_does_not_run_as_often(tmp_path: Path, given: str, *, apart: bool) -> None:
    """Only of the others it is said that a call was left out."""
    (path := tmp_path / "train.py").write_text(TRAIN.format(given=given))
    inside, outside = (str(path), line(path, "inside"), "main"), (str(path), line(path, "outside"), "main")
    below = (str(path), len(path.read_text().splitlines()), "<module>")

    loop = loop_left([inside, below], [outside, below], lambda *_: False)

    assert loop is not None
    assert (loop.begins is not None) is apart
    assert loop.alike is not apart


@pytest.mark.parametrize(("given", "apart"), [pytest.param(*each, id=name) for name, each in OF_A_RUN.items()])
def test_a_run_that_keeps_where_it_begins(tmp_path: Path, given: str, *, apart: bool) -> None:
    """The number is an attribute of what trains."""
    (path := tmp_path / "train.py").write_text(RUN.format(given=given))
    below = (str(path), len(path.read_text().splitlines()), "<module>")
    inside, outside = ((str(path), line(path, mark), "train") for mark in ("inside", "outside"))

    loop = loop_left([inside, below], [outside, below], lambda *_: False)

    assert loop is not None
    assert (loop.begins is not None) is apart


def test_where_it_begins_is_named(tmp_path: Path) -> None:
    """Rank 0 has resumed, and is past the loop."""
    (path := tmp_path / "train.py").write_text(TRAIN.format(given="    start = resume(folder, model)"))
    judge = Dispatcher(CHECKS)
    below = Site(str(path), len(path.read_text().splitlines()), "<module>")
    ranks = []
    for rank, (mark, operation) in enumerate((("outside", "barrier"), ("inside", "backward"))):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo")))
        site = Site(str(path), line(path, mark), "main")
        ranks.append(
            Position(
                rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=site, operation=operation,
                stack=(site, below), forwards=18 + rank,
            )
        )  # fmt: skip

    [found] = judge.see(Stalled(pid=0, time=9.0, ranks=tuple(ranks), world_size=2))

    assert found.check.slug == "ranks-diverge"
    assert "it counts from start, which each rank finds for itself at line 6" in found.finding.message


FIT = """
def fit(model, loader):
    for batch in loader:  # loop
        loss = model(batch)
        if loss.item() < 0.02:
            return "converged"  # leaves
{more}        loss.backward()  # inside
    return "more"
"""


@pytest.mark.parametrize(
    ("more", "slug"),
    [
        pytest.param("", "loop-left-early", id="one way"),
        pytest.param("        if loss.isnan():\n            break\n", "rank-left-early", id="two ways"),
    ],
)
def test_the_way_out_of_a_pass_with_batches_left(tmp_path: Path, more: str, slug: str) -> None:
    """The rank that ended has not used up its batches: where the loop has one way out, it has taken that."""
    (path := tmp_path / "fit.py").write_text(FIT.format(more=more))
    (main := tmp_path / "main.py").write_text(
        "for epoch in range(4):\n    if fit(m, l) == 'converged':\n        break\n"
    )
    at, below = Site(str(path), line(path, "inside"), "fit"), Site(str(main), 2, "<module>")
    judge = Dispatcher(CHECKS)
    for rank in (0, 1):
        list(judge.see(Joined(pid=rank + 1, time=0.1, rank=rank, world_size=2, backend="gloo")))
        site = Site(str(path), line(path, "loop"), "fit")
        begun = EpochStarted(
            pid=rank + 1, time=0.5, rank=rank, loader=0, number=0, training=True, dataset="", length=32, batches=16,
            batch_size=2, sampler=None, workers=0, drop_last=False, iterable=False, given=0, owning_library="",
            subgroups=False, site=site,
        )  # fmt: skip
        list(judge.see(begun))
    list(judge.see(Left(pid=1, time=1.0, rank=0, models=1, ended=True)))
    lost = Failed(pid=2, time=2.0, rank=1, error="RuntimeError", text="RuntimeError: Connection closed", site=at)
    call = Communication(4, 1.0, "all_reduce", "0", "[3]", at)
    progress = (Progress(rank=0, forwards=4, recent=()), Progress(rank=1, forwards=4, recent=(call,)))

    [found] = judge.see(
        PeerLost(pid=0, time=3.0, first=None, others=(lost,), gone=(), ended=(0,), progress=progress, stack=(at, below))
    )

    assert found.check.slug == slug
    if more:
        assert found.finding.ambiguity is not None
