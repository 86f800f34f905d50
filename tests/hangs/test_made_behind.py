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
    [
        ("part.rename(path)", "path"),
        ("torch.save(model, self.file)", "self.file"),
        ("os.replace(part, path)", "path"),
        ("open(path, 'w').close()", "path"),
        ("path.open(mode='xb').close()", "path"),
    ],
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
        ("pass", "open(path, 'rb').read()", "path"),
        ("pass", "torch.save(model, Path(other))", "Path(file)"),
    ],
    ids=["made before", "another file", "another attribute", "not made", "read", "made of another"],
)
def test_else_it_can_still_come(tmp_path: Path, before: str, after: str, asked: str) -> None:
    """Another process may make it: a note."""
    assert told(tmp_path, before, after, asked).severity is Severity.NOTE


def asked(folder: Path, source: str) -> Finding:
    """Return what is said where rank 1 sleeps in the loop of a script, and rank 0 waits."""
    (file := folder / "train.py").write_text(source)
    line = next(number for number, each in enumerate(source.splitlines(), 1) if "sleep" in each)
    asks, waits = Site(str(file), line, "prepare"), Site(str(file), 1, "<module>")
    ranks = (
        Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, operation="barrier", site=waits, stack=(waits,)),
        Position(rank=1, pid=2, doing=Doing.ASKING, seconds=9, site=asks, stack=(asks,)),
    )
    found: Finding
    (found,) = while_training.examine(Stalled(pid=0, time=9.0, ranks=ranks, world_size=2))
    return found


OWN = """\
import tempfile, uuid, os, time
from pathlib import Path

def prepare(folder):
    done = folder / "done"
    if rank == 0:
        done.touch()
    else:
        while not done.exists():
            time.sleep(1)

def main():
    {made}
    prepare(folder)

main()
"""


@pytest.mark.parametrize(
    ("made", "line"),
    [
        ("folder = Path(tempfile.mkdtemp())", 13),
        ("folder = Path(f'/tmp/run-{uuid.uuid4()}')", 13),
        ("run = os.getpid()\n    folder = Path(f'/tmp/{run}')", 13),
    ],
)
def test_each_rank_has_a_path_of_its_own(tmp_path: Path, made: str, line: int) -> None:
    """Nobody else makes a file there: an error, at the line that makes the path."""
    found = asked(tmp_path, OWN.format(made=made))

    assert "for a file in a place of its own" in found.message
    assert "another rank makes at train.py:7" in found.message
    assert (found.place.line, found.severity) == (line, None)


@pytest.mark.parametrize(
    "made",
    [
        "folder = Path('/tmp/cache')",
        "folder = Path(os.environ['CACHE'])",
        "folder = broadcast(Path(tempfile.mkdtemp()))",
        "box = [tempfile.mkdtemp()]\n    dist.broadcast_object_list(box)\n    folder = Path(box[0])",
    ],
)
def test_a_path_that_all_have_alike_is_none_of_its_own(tmp_path: Path, made: str) -> None:
    """Nor one that rank 0 has told the others."""
    assert asked(tmp_path, OWN.format(made=made)).severity is Severity.NOTE


NAMED = """\
import time
from pathlib import Path

ROOT = Path("/data")

def prepare(there):
    while True:
        if there.is_file():
            return
        time.sleep(1)

def make():
    ROOT.mkdir()
    (ROOT / "{made}").write_text("1")

prepare(ROOT / "ready.ok")
"""


@pytest.mark.parametrize(("made", "said"), [("ready", True), ("ready.ok", False), ("part-{number}", True)])
def test_a_name_that_no_line_makes_is_told(tmp_path: Path, made: str, *, said: bool) -> None:
    """It stays a note: another program can make it."""
    found = asked(tmp_path, NAMED.format(made=made))

    assert ("which no line of train.py makes" in found.message) is said
    assert found.severity is Severity.NOTE
