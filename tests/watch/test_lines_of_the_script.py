"""What is told of an error names the line of the user's files that it comes from, where there is one alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.check import Frame, Record, SavesInto, Site
from ddpdoctor.checks.checkpoint.writing.checkpoint_folders_differ import _told
from ddpdoctor.checks.model.backward.training_step_returns_none import _returns
from ddpdoctor.checks.model.unused._reentrant import reentrant_call

STEP = "class Net:\n    def training_step(self, batch, index):\n        if not batch.sum():\n            return{}\n"
CHECKPOINT = "from torch.utils.checkpoint import checkpoint\ndef forward(b, x):\n    return {}\n"
ONCE = "checkpoint(b, x, use_reentrant=True)"


def record(folder: Path, text: str) -> Record:
    """Return a traceback whose frame is of train.py, which imports the file with this text."""
    (folder / "net.py").write_text(text)
    (folder / "train.py").write_text("from net import *\nfit()\n")
    return Record(text="", frames=(Frame(str(folder / "train.py"), 2, "<module>"),))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (STEP.format(" None"), 4),
        (STEP.format(""), 4),
        (STEP.format(" self.net(batch)"), 0),
        (STEP.format(" None") + "        return None\n", 0),
        (STEP.format(" self.net(batch)") + "        def own():\n            return None\n", 0),
    ],
)
def test_the_line_that_returns_none(text: str, line: int, tmp_path: Path) -> None:
    """Of training_step alone, and of no function within it."""
    found = _returns(record(tmp_path, text))

    assert found == ((str(tmp_path / "net.py"), line) if line else None)


@pytest.mark.parametrize(
    ("code", "mended"),
    [
        (ONCE, "checkpoint(b, x, use_reentrant=False)"),
        ("checkpoint(b, x, use_reentrant=False)", ""),
        ("checkpoint(b, x)", ""),  # what that is hangs on torch's version
        (f"{ONCE} + {ONCE}", ""),
    ],
)
def test_the_line_of_reentrant_checkpointing(code: str, mended: str, tmp_path: Path) -> None:
    """The one that asks for it, and no other."""
    found = reentrant_call(record(tmp_path, CHECKPOINT.format(code)))

    assert (found.mended_code if found else "") == mended
    assert not found or (found.file, found.line) == (str(tmp_path / "net.py"), 3)


def test_the_folder_is_told_by_rank_0(tmp_path: Path) -> None:
    """By its name in the script, where it has one."""
    path = tmp_path / "train.py"
    path.write_text("dcp.save(state, checkpoint_id=folder)\ndcp.save(state, checkpoint_id=make())\n")
    event = "torch.distributed.checkpoint"
    named, made = (
        _told(SavesInto(pid=1, time=1.0, framework=event, number=0, folder="", site=Site(str(path), line, "")))
        for line in (1, 2)
    )

    assert named is not None
    assert "+folder = told[0]" in named.diff
    assert made is None
