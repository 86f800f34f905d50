"""The test that decides whether a rank comes to a call, in the function of that or of those that have called it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.absent.diverged._under_a_test import under_a_test
from ddpdoctor.checks.collectives.absent.diverged.ranks_diverge import while_training
from ddpdoctor.checks.collectives.hangs.calls._callers import tests_above as above
from ddpdoctor.watch.events import Doing, Position, Site, Stalled
from ddpdoctor.watch.training import Training

SOURCE = """\
class Best:
    def sync(self):
        dist.all_reduce(self.total)
    def on_epoch_end(self):
        if self.local() < self.best:
            self.best = self.sync()

def step(model, batch, number):
    loss = model(batch).mean()
    low = loss.isnan().any()
    known = number > 3
    if {test}:
        loss.backward()

if __name__ == "__main__":
    for number, batch in enumerate(loader):
        step(model, batch, number)
"""
REDUCES, SYNCS, BACKWARD, STEPS = 3, 6, 13, 17


def written(folder: Path, test: str = "loss.item() < 1") -> str:
    """Return the path of the training."""
    path = folder / "train.py"
    path.write_text(SOURCE.format(test=test), encoding="utf-8")
    return str(path)


def waits(rank: int, operation: str, *stack: Site) -> Position:
    """Return a rank that waits; its stack is innermost first."""
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=stack[0], operation=operation, stack=stack
    )


def test_that_of_the_only_caller_is_found(tmp_path: Path) -> None:
    """With its own line; what only asks whether the file is run is none."""
    file = written(tmp_path)
    site = Site(file, SYNCS, "on_epoch_end")

    assert above(Site(file, REDUCES, "sync")) == [("self.local() < self.best", site)]
    called_twice = tmp_path / "twice.py"
    called_twice.write_text(SOURCE + "\nbest.sync()\n", encoding="utf-8")
    assert above(Site(str(called_twice), REDUCES, "sync")) == []


@pytest.mark.parametrize(
    ("test", "told"), [("loss.item() < 1", True), ("number % 2 == 0", False), ("low", True), ("known", False)]
)
def test_a_rank_that_has_left_the_function_has_passed_its_test(tmp_path: Path, test: str, told: bool) -> None:  # noqa: FBT001
    """It stands at the line that has called it; a test of a number that all ranks count alike tells nothing."""
    file = written(tmp_path, test)
    outer = Site(file, STEPS, "<module>")
    ranks = waits(0, "backward", Site(file, BACKWARD, "step"), outer), waits(1, "broadcast", outer)
    found = under_a_test(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2))

    assert (found is not None) == told
    assert found is None or f"which is reached where `{test}`; rank 1 has not come there" in found.message


LOGS = """\
import logging
class All({base}):
    def emit(self, record):
        dist.all_gather_object(lines, record)

def clean(batch):
    if batch.max() > 4:
        log.warning("outlier")

for batch in loader:
    model(clean(batch)).backward()
"""


@pytest.mark.parametrize("base", ["logging.StreamHandler", "Sink"])
def test_a_handler_of_logging_that_communicates_is_named(tmp_path: Path, base: str) -> None:
    """With the line that logs; a class of another kind is not known as one."""
    file = tmp_path / "train.py"
    file.write_text(LOGS.format(base=base), encoding="utf-8")
    outer = Site(str(file), 11, "<module>")
    stack = Site(str(file), 4, "emit"), Site(str(file), 8, "clean"), outer
    event = Stalled(
        pid=0, time=2.0, ranks=(waits(0, "all_gather_object", *stack), waits(1, "backward", outer)), world_size=2
    )
    [found] = while_training.examine(event, Training())

    named = "in the logging of train.py:8, under `if batch.max() > 4`: All communicates each time a rank logs"
    assert (named in found.message) is (base != "Sink")
