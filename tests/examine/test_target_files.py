"""What the user's file does to other files when a rank imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.examine.target import Target
from ddpdoctor.jobs.outcome import Returned
from ddpdoctor.selftest.probes import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ddpdoctor.jobs.pool import Jobs

TRAINS = """
import os
import torch

open("log.txt", "a").write("more")
torch.save(torch.nn.Linear(2, 2).state_dict(), "last.pt")
open("best.pt.tmp", "w").write("better")
os.replace("best.pt.tmp", "best.pt")
open("downloaded.bin", "w").write("data")
os.replace("downloaded.bin", "data.bin")


def build(_):
    pass
"""


def test_a_script_that_trains_when_it_is_imported_overwrites_nothing(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there is as before; what was not, as a download, stays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{TRAINS}")
    for name in ("last.pt", "best.pt", "log.txt"):
        (tmp_path / name).write_bytes(b"the user's")

    outcomes = jobs.run(write_checkpoint, Target(str(tmp_path / "train.py"), "build"), "", ranks=1)

    assert all(isinstance(each, Returned) for each in outcomes), outcomes
    assert {(tmp_path / name).read_bytes() for name in ("last.pt", "best.pt", "log.txt")} == {b"the user's"}
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == [
        "best.pt",
        "data.bin",
        "last.pt",
        "log.txt",
        "train.py",
    ]
