"""Two ranks in different collectives within Trainer.fit: the one value that is logged behind a test is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Doing, Position, Site, Stalled

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

TRAIN = """\
import lightning as L

class Lit(L.LightningModule):
    def validation_step(self, batch, i):
        self.log("val_loss", loss(batch), sync_dist=True)
        if pos.any():
            {logs}
        if i % 10 == 0:
            self.log("every", loss(batch), sync_dist=True)

L.Trainer(devices=2).fit(Lit())
"""


def told(tmp_path: Path, logs: str) -> tuple[str, Finding]:
    """Return the check, and what it says of two ranks that are seen at the last line."""
    path = tmp_path / "train.py"
    path.write_text(text := TRAIN.format(logs=logs), encoding="utf-8")
    site = Site(str(path), text.count("\n"), "<module>")
    ranks = tuple(
        Position(rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=site, operation=name, stack=(site,))
        for rank, name in enumerate(("barrier", "broadcast"))
    )
    (found,) = Dispatcher(CHECKS).see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2, outside=True))
    return found.check.slug, found.finding


def test_the_only_one_behind_a_test_is_named(tmp_path: Path) -> None:
    """Of a number of the step all ranks think alike."""
    slug, found = told(tmp_path, 'self.log("val_pos", hits, sync_dist=True)')

    assert slug == "ranks-log-different-metrics"
    assert "'val_pos' at train.py:7 alone is decided by a test, under `if pos.any()`" in found.message
    assert "value if pos.any() else 0.0" in (found.fix.diff or "")


@pytest.mark.parametrize(
    "logs",
    [
        'self.log("val_pos", hits)',
        'self.log("val_pos", hits, sync_dist=False)',
        'self.log("a", hits, sync_dist=True); self.log("b", hits, sync_dist=True)',
    ],
    ids=["not reduced", "told not to be", "two of them"],
)
def test_of_none_and_of_several_none_is_named(tmp_path: Path, logs: str) -> None:
    """The two collectives are told then."""
    assert told(tmp_path, logs)[0] == "collective-order-mismatch"


def test_a_script_beside_that_is_not_imported_says_nothing(tmp_path: Path) -> None:
    """Folders hold many trainings; only what the one that hangs imports is its own."""
    other = TRAIN.format(logs='self.log("val_pos", hits, sync_dist=True)')
    for name in ("beside", "imports"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "other.py").write_text(other, encoding="utf-8")
    assert told(tmp_path / "beside", "pass")[0] == "collective-order-mismatch"

    slug, found = told(tmp_path / "imports", "import other")
    assert slug == "ranks-log-different-metrics"
    assert "other.py:7" in found.message


SAVED = 'if self.trainer.is_global_zero:\n                self.trainer.save_checkpoint("best.ckpt")'


def test_a_call_for_all_ranks_that_one_makes_is_named(tmp_path: Path) -> None:
    """It met another call of the others: both ranks are somewhere else by now."""
    slug, found = told(tmp_path, SAVED)

    assert slug == "rank0-only-collective"
    assert "self.trainer.save_checkpoint at train.py:8 alone is made by one rank" in found.message
    assert "under `if self.trainer.is_global_zero`" in found.message


def test_where_a_metric_may_be_it_as_well_neither_is_named(tmp_path: Path) -> None:
    """Each explains what is seen."""
    both = f'{SAVED}\n            self.log("val_pos", hits, sync_dist=True)'

    assert told(tmp_path, both)[0] == "collective-order-mismatch"
