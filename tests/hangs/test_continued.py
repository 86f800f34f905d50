"""A rank that ended with fewer steps than another one: by a `continue` of the loop, where nothing else can be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks.collectives.absent.ended.rank_left_early import by_those_who_lost_it
from ddpdoctor.watch.events import EpochStarted, Failed, PeerLost, Progress, Site
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

BAD = """for x in loader:
    if x.isnan().any():
        continue
    step(x)
"""
COUNTED = "for i in range(9):\n    if i == 3:\n        continue\n    step(i)\n"
RETURNS = """def step(x):
    try:
        loss = forward(x)
    except ValueError:
        return
    loss.backward()
for x in loader:
    step(x)
"""
TWO = RETURNS.replace("    try:\n        loss = forward(x)\n", "    if x is None: return\n    try:\n")
CAUGHT = """for x in loader:
    try:
        x = checked(x)
    except Exception:
        continue
    step(x)
"""
NONE = "for x in loader:\n    y = 1\n    z = 2\n    step(x)\n"


@pytest.mark.parametrize(
    ("code", "forwards", "batches", "line"),
    [(BAD, (7, 8), (8, 8), 3), (BAD, (8, 8), (8, 8), 4), (BAD, (7, 8), (7, 8), 4), (COUNTED, (7, 8), (8, 8), 4),
     (NONE, (7, 8), (8, 8), 4)],
)  # fmt: skip
def test_the_continue_is_named_where_batches_are_as_many(
    tmp_path: Path, code: str, forwards: tuple[int, int], batches: tuple[int, int], line: int
) -> None:
    """Ranks that made as many forwards, or were given other numbers of batches, have another cause."""
    file = tmp_path / "train.py"
    file.write_text(code)
    training = given(batches)

    assert ("`continue` at line 3" in told(file, training, forwards, 4)[0]) is (line == 3)
    assert told(file, training, forwards, 4)[1] == line


@pytest.mark.parametrize(("code", "line"), [(RETURNS, 5), (TWO, 6)])
def test_the_return_of_a_helper_is_named_where_it_is_the_only_one(tmp_path: Path, code: str, line: int) -> None:
    """A loader gave both as many batches, and the handler of an exception has left the step of one out."""
    file = tmp_path / "train.py"
    file.write_text(code)
    message, place = told(file, given((8, 8)), (7, 8), 6, 8)

    assert ("`return` at line 5, under `except ValueError`, leads past a step" in message) is (code == RETURNS)
    assert place == line


def test_the_handler_that_goes_on_is_named_where_it_is_the_only_way_past_the_step(tmp_path: Path) -> None:
    """The rank that left the step out caught an error of its own batch."""
    file = tmp_path / "train.py"
    file.write_text(CAUGHT)
    message, place = told(file, given((8, 8)), (7, 8), 6)

    assert "`continue` at line 5, under `except Exception`, leads past a step" in message
    assert place == 5


@pytest.mark.parametrize(("gives", "named"), [("loss = model(x)", True), ("x = x.clone()", False)])
def test_a_continue_between_forward_and_backward_leaves_out_the_backward(
    tmp_path: Path, gives: str, *, named: bool
) -> None:
    """Both ranks have begun as many forwards; one before the forward had left that out as well."""
    file = tmp_path / "train.py"
    file.write_text(
        f"for x in loader:\n    {gives}\n    if not x.isfinite():\n        continue\n    loss.backward()\n    step()\n"
    )
    message, place = told(file, given((8, 8)), (8, 8), 5)

    assert ("`continue` at line 4, under `if not x.isfinite()`, leads past a step" in message) is named
    assert place == (4 if named else 5)


def test_the_continue_of_a_loop_without_a_model_is_shown(tmp_path: Path) -> None:
    """Nothing tells who took it: the call that the other rank was in stays what is told."""
    file = tmp_path / "gather.py"
    file.write_text("for shard in shards:\n    if not shard:\n        continue\n    gather(shard)\n")
    finding = found(file, Training(), (0, 0), 4)

    said = "`continue` at line 3, under `if not shard`, leads past the call"
    assert said in [each.seen for each in finding.evidence]
    assert finding.place.line == 4


def given(batches: tuple[int, int]) -> Training:
    """Return a training in which loaders have so many batches."""
    training = Training()
    for rank in (0, 1):
        training.add(
            EpochStarted(pid=rank, time=0.5, rank=rank, loader=0, number=0, batches=batches[rank], training=True,
                         dataset="TensorDataset", length=64, batch_size=4, drop_last=False, workers=0, iterable=False,
                         sampler=None, given=0, owning_library="", subgroups=False)
        )  # fmt: skip
    return training


def told(file: Path, training: Training, forwards: tuple[int, int], *lines: int) -> tuple[str, int | None]:
    """Return message and line of what is found there."""
    finding = found(file, training, forwards, *lines)
    return finding.message, finding.place.line


def found(file: Path, training: Training, forwards: tuple[int, int], *lines: int) -> Finding:
    """Return what is found where rank 1 is lost at these lines, and rank 0 has ended."""
    stack = tuple(Site(str(file), line, "main") for line in lines)
    lost = Failed(
        pid=1, time=1.6, rank=1, site=stack[0], error="RuntimeError", text="RuntimeError: Connection closed by peer"
    )
    progress = tuple(Progress(rank=rank, forwards=forwards[rank], recent=(), ended=rank == 0) for rank in (0, 1))
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), ended=(0,), progress=progress, stack=stack)
    finding: Finding
    (finding,) = by_those_who_lost_it.examine(event, training)
    return finding
