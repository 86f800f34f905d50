"""What is advised where one rank alone comes to a call: what else a test asks stays, and a bar counts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.checks.collectives.hangs.source._one_rank import mend
from ddpdoctor.checks.collectives.hangs.source._rewritten import of_the_first, rewritten
from ddpdoctor.checks.collectives.skipped._disabled_bar import asked_bar
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Joined, MetricSynced, Position, Site, Stalled

BAR = "bar = tqdm(range(10), disable={})\nfor x in loader:\n    if bar.n and bar.n % 2 == 0:\n        evaluate()\n"
TEST = "under `if bar.n and bar.n % 2 == 0`"


@pytest.mark.parametrize(
    ("test", "left"),
    [
        ("step % 5 == 4 and monitor is not None", "+if step % 5 == 4:"),
        ("rank == 0 and step % 5 == 4", "+if step % 5 == 4:"),
        ("ready and monitor is not None", "+log(...)"),
        ("monitor is not None", "+log(...)"),
    ],
)
def test_what_all_ranks_count_alike_stays(test: str, left: str) -> None:
    """Where no term has a word for the rank, those that hold once in so many steps are not what parts them."""
    assert left in rewritten(f"under `if {test}`", "log(...)").splitlines()


@pytest.mark.parametrize(
    ("test", "first"),
    [
        ("idist.get_local_rank() > 0", "idist.get_local_rank() == 0"),
        ("rank != 0", "rank == 0"),
        ("not accelerator.is_main_process", "accelerator.is_main_process"),
        ("args.local_rank not in [-1, 0]", "args.local_rank in [-1, 0]"),
        ("rank == 0", ""),
    ],
)
def test_the_half_of_the_first_rank_is_added(test: str, first: str) -> None:
    """A barrier that all but the first come to waits for the one that the first has not."""
    guard = f"under `if {test}`"
    fix = mend("dist.barrier", guard)

    assert of_the_first(guard) == first
    assert (f"+if {first}:" in (fix.diff or "")) is bool(first)
    assert not first or f"+if {first}:" not in (mend("dist.all_reduce", guard).diff or "")


@pytest.mark.parametrize(
    ("disabled", "asked"), [("not accelerator.is_main_process", True), ("rank != 0", True), ("False", False)]
)
def test_a_bar_that_is_disabled_counts_nothing(tmp_path: Path, disabled: str, *, asked: bool) -> None:
    """It is named where a test asks how far it is."""
    (path := tmp_path / "train.py").write_text(BAR.format(disabled))
    found = asked_bar(Site(str(path), 4, "<module>"), TEST)

    assert (found is not None) is asked
    if found is not None:
        assert found.told == f"bar.n stays 0 where `disable={disabled}` holds"
        assert "+if step and step % 2 == 0:" in (found.fix.diff or "").splitlines()
        assert found.evidence.source == f"{path}:1"


LOGGED = """
def validation_step(self, batch, i):
    values = {names}
    self.log_dict(values, sync_dist=True)

trainer.fit(model)
"""


@pytest.mark.parametrize(
    ("names", "other", "told"),
    [
        ("{f'val/{c}': losses[y == c].mean() for c in y.unique()}", "val/cat", True),
        ("{'val/dog': losses.mean()}", "val/cat", False),
        ("{f'val/{c}': losses[y == c].mean() for c in y.unique()}", "", False),
    ],
)
def test_names_that_are_made_of_the_batch(tmp_path: Path, names: str, other: str, *, told: bool) -> None:
    """Both ranks have logged at one line, and not the same: where the source has the names, one is on its way."""
    (path := tmp_path / "train.py").write_text(LOGGED.format(names=names))
    line, fit = Site(str(path), 4, "validation_step"), Site(str(path), 6, "<module>")
    judge = Dispatcher(CHECKS)
    logged = ((0, "val/dog"), *(((1, other),) if other else ()))
    for rank in (0, 1):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo")))
    for rank, name in logged:
        list(judge.see(MetricSynced(pid=rank + 1, time=1.0, rank=rank, name=name, site=line)))
    ranks = tuple(
        Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=fit, operation=operation, stack=(fit,),
            recent=(Communication(7, 7.0, operation, "0", "[1]", fit),),
        )
        for rank, operation in enumerate(("barrier", "broadcast"))
    )  # fmt: skip
    [found] = judge.see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2))

    assert (found.check.slug == "ranks-log-different-metrics") is told
    assert ("rank 0 logs 'val/dog'" in found.finding.message) is told
