"""A file that one rank asks for, and that another one makes behind the collective in which it waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.absent.slow_rank import while_training
from ddpdoctor.findings import Finding, Severity
from ddpdoctor.watch.events import Doing, Position, Site, Stalled

SOURCE = """\
def wait_for(there):
    while not there.exists():
        time.sleep(1)

def save(self, model, path):
    if rank == 0:
        {before}
        dist.barrier()
        {after}
    else:
        wait_for({asked})
        dist.barrier()
"""


def told(folder: Path, before: str, after: str, asked: str) -> Finding:
    """Return what is said where rank 0 is in its barrier, and rank 1 asks for the file."""
    file = folder / "train.py"
    file.write_text(SOURCE.format(before=before, after=after, asked=asked))
    asks, waits = (Site(str(file), 3, "wait_for"), Site(str(file), 11, "save")), (Site(str(file), 8, "save"),)
    ranks = (
        Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, operation="barrier", site=waits[0], stack=waits),
        Position(rank=1, pid=2, doing=Doing.ASKING, seconds=9, site=asks[0], stack=asks),
    )
    found: Finding
    (found,) = while_training.examine(Stalled(pid=0, time=9.0, ranks=ranks, world_size=2))
    return found


@pytest.mark.parametrize(
    ("after", "asked"),
    [("part.rename(path)", "path"), ("torch.save(model, self.file)", "self.file"), ("os.replace(part, path)", "path")],
)
def test_what_is_made_behind_the_wait_is_named(tmp_path: Path, after: str, asked: str) -> None:
    """Neither rank can go on, so it is an error."""
    found = told(tmp_path, "pass", after, asked)

    assert (
        "rank 0 makes that at train.py:9, behind the barrier at train.py:8 in which it waits for rank 1"
        in found.message
    )
    assert (found.place.line, found.severity) == (9, None)


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        ("part.rename(path)", "pass", "path"),
        ("pass", "torch.save(model, other)", "path"),
        ("pass", "torch.save(model, self.other)", "self.file"),
        ("pass", "log(path)", "path"),
        ("pass", "torch.save(model, Path(other))", "Path(file)"),
    ],
    ids=["made before", "another file", "another attribute", "not made", "made of another"],
)
def test_else_it_can_still_come(tmp_path: Path, before: str, after: str, asked: str) -> None:
    """Another process may make it: a note."""
    assert told(tmp_path, before, after, asked).severity is Severity.NOTE
