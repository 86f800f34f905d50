"""A rank that is past a loop which runs as often on all ranks: it has left a call out, and the loop is not at fault."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.check import runs_alike, tree_of
from ddpdoctor.source.reach.exits import loop_left
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Doing, Position, Site, Stalled

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

TRAIN = """\
import argparse
import torch.distributed as dist

class Layer:
    def __init__(self, chief):
        self.first = dist.get_rank() == 0
        self.limit = 3

    def forward(self, x, step):
        if {test}:
            return x
        dist.all_to_all_single(theirs, counts)  # inside

def main(batches):
    args = argparse.ArgumentParser().parse_args()
    steps = 60
    layer = Layer(True)
    for step in {items}:
        layer.forward(x, step)  # calls
    dist.barrier()  # outside

main()
"""


def told(
    tmp_path: Path,
    test: str = "x.numel() == 0",
    items: str = "range(60)",
    operation: str = "all_to_all",
    *,
    ended: bool = False,
) -> Finding:
    """Return what is said of two ranks, of which one is past the loop, or has ended."""
    path = tmp_path / "train.py"
    path.write_text(dedent(TRAIN).format(test=test, items=items), encoding="utf-8")
    lines = path.read_text(encoding="utf-8").splitlines()
    inside, calls, outside = (
        next(number for number, line in enumerate(lines, 1) if f"# {mark}" in line)
        for mark in ("inside", "calls", "outside")
    )
    started = Site(str(path), len(lines), "<module>")
    waits = Site(str(path), inside, "forward"), Site(str(path), calls, "main"), started
    left = Site(str(path), outside, "main"), started
    past = Position(rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=left[0], operation="barrier", stack=left)
    ranks = (
        Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=waits[0], operation=operation, stack=waits),
        Position(rank=1, pid=2, doing=Doing.ENDED, seconds=9) if ended else past,
    )
    (found,) = Dispatcher(CHECKS).see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2))
    return found.finding


@pytest.mark.parametrize("items", ["range(60)", "range(1, steps + 1)", "range(args.steps)", "layer.model.parameters()"])
def test_the_return_before_the_call_is_named(tmp_path: Path, items: str) -> None:
    """Its line, and no word of another number of iterations, which a count that all ranks share has not."""
    found = told(tmp_path, items=items)

    assert "runs as often on all ranks" in found.message
    assert "reached only where `x.numel() == 0` is false" in found.message
    assert found.place.line == 10
    assert found.ambiguity is None
    assert "iterations" not in found.fix.summary
    assert "Join" not in (found.fix.diff or "")


def test_of_several_tests_all_are_named(tmp_path: Path) -> None:
    """The evidence does not tell them apart."""
    found = told(tmp_path, test="x.sum() > 9:\n            return x\n        if x.numel() == 0")

    assert found.ambiguity is not None
    assert [each.partition(",")[0] for each in found.ambiguity.causes] == [
        "where `x.sum() > 9` is false",
        "where `x.numel() == 0` is false",
    ]


@pytest.mark.parametrize("test", ["step % 50", "step > self.limit", "not dist.is_initialized()", "not self.training"])
def test_what_all_ranks_answer_alike_is_no_cause(tmp_path: Path, test: str) -> None:
    """Then it is said that a call was left out, or one more made, and what tells these apart."""
    found = told(tmp_path, test=test)

    assert "reached only" not in found.message
    assert found.ambiguity is not None
    assert "ddpdoctor run" in found.ambiguity.command


@pytest.mark.parametrize("test", ["not self.first", "not self.first or step % 50"])
def test_a_test_of_the_rank_is_named_as_such(tmp_path: Path, test: str) -> None:
    """With the line that gave the attribute its value."""
    found = told(tmp_path, test=test)

    assert f"where `{test}` is false: rank 1 has skipped it" in found.message
    assert any(each.seen == "self.first = dist.get_rank() == 0" for each in found.evidence)


@pytest.mark.parametrize(("operation", "joins"), [("backward", True), ("all_to_all", False)])
def test_join_is_offered_for_what_ddp_reduces_alone(tmp_path: Path, operation: str, joins: bool) -> None:  # noqa: FBT001
    """Where the loop goes through what each rank has of its own, its end is named."""
    found = told(tmp_path, items="batches", operation=operation)

    assert "has left the loop" in found.message
    assert ("Join" in (found.fix.diff or "")) == joins


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ("range(9)", "rank 1, which has come to its end, has made a call of it less"),
        ("batches", "rank 1 has ended after"),
    ],
)
def test_of_a_rank_that_has_come_to_its_end_as_well(tmp_path: Path, items: str, said: str) -> None:
    """Which a watch knows; of a loop over its own batches, its end is named."""
    assert said in told(tmp_path, items=items, ended=True).message


@pytest.mark.parametrize(
    ("held", "alike"),
    [
        ("[p for p in model.parameters() if p.requires_grad]", True),
        ("list(enumerate(model.named_parameters()))", True),
        ("[p for p in model.parameters() if p.grad is not None]", False),
        ("[]", False),
        ("batches", False),
    ],
)
def test_the_parts_of_a_model_are_as_many_on_all_ranks(tmp_path: Path, held: str, *, alike: bool) -> None:
    """But for those that have a gradient, which a rank can lack; and the loop around them is named, of what it has."""
    code = (
        f"class A:\n    def __init__(self, model, batches):\n        self.items = {held}\n"
        "    def average(self):\n        for item in self.items:\n            dist.all_reduce(item)\n"
        "for batch in loader:\n    a.average()\ndist.barrier()\n"
    )
    path = tmp_path / "train.py"
    path.write_text(code, encoding="utf-8")
    tree = tree_of(str(path))
    inside = [(str(path), 6, "average"), (str(path), 8, "<module>")]
    left = loop_left(inside, [(str(path), 9, "<module>")], lambda _file, _line: False)

    assert runs_alike(tree.of(ast.For)[0], tree) is alike
    assert left is not None
    assert left.line == (7 if alike else 5)
