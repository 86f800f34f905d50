"""A disk that is full: which one to look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import Run

TRACEBACK = """Traceback (most recent call last):
  File "{file}", line {line}, in main
    {code}
OSError: [Errno 28] No space left on device
"""
ALL = "df -h --output=pcent,avail,target | sort -rn | head"


@pytest.mark.parametrize(
    ("before", "code", "command"),
    [
        ('with open(f"/scratch/metrics-{rank}.bin", "ab") as out:', "out.write(block)", "df -h /scratch; du"),
        ('out = open("/scratch/a b/log", "a")', "out.write(block)", "df -h '/scratch/a b'; du"),
        ('with open(f"/scratch/other-{rank}.bin", "ab") as other:', "out.write(block)", ALL),
        ("pass", 'torch.save(state, f"/models/{step}/last.pt")', "df -h /models; du"),
        ("pass", 'np.save("here.npy", block)', "df -h .; du"),
        ("pass", "torch.save(state, path)", ALL),
    ],
)
def test_the_disk_of_the_file_that_was_written_is_named(
    ddpdoctor: Run, tmp_path: Path, before: str, code: str, command: str
) -> None:
    """By the line, or by the one above that opens what it writes to; else the command looks at all disks."""
    script, log = tmp_path / "train.py", tmp_path / "a.log"
    script.write_text(f"import torch\n{before}\n    {code}\n")
    log.write_text(TRACEBACK.format(file=script, line=3, code=code))
    assert command in ddpdoctor("explain", str(log)).stdout


def test_a_source_that_has_changed_names_no_disk(ddpdoctor: Run, tmp_path: Path) -> None:
    """The line is another one now."""
    script, log = tmp_path / "train.py", tmp_path / "a.log"
    script.write_text('import torch\nwith open("/scratch/a", "w") as out:\n    out.write(other)\n')
    log.write_text(TRACEBACK.format(file=script, line=3, code="out.write(block)"))
    assert ALL in ddpdoctor("explain", str(log)).stdout
