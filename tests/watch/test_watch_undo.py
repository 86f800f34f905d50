from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddpdoctor.files.journal import undo

SCRIPT = """
import sys
from ddpdoctor.files.journal import note_changes
note_changes(sys.argv[1])
import os, shutil
from pathlib import Path
"""


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return what a folder holds: names and bytes; None for a folder."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "change",
    [
        "Path('new').write_text('x')",
        "os.makedirs('a/b/c'); Path('a/b/c/new').write_text('x'); os.replace('a/b/c/new', 'a/b/newer')",
        "Path('log').open('a').write('more')",
        "Path('best.pt').write_text('x'); Path('best.pt').write_text('y')",
        "shutil.copyfile('log', 'best.pt')",
        "os.remove('best.pt'); Path('best.pt').write_text('x')",
        "[(Path('tmp').write_text(str(each)), os.replace('tmp', 'best.pt')) for each in range(3)]",
        "[(os.replace('best.pt', 'older.pt'), Path('best.pt').write_text(str(each))) for each in range(3)]",
        "shutil.rmtree('run')",
        "os.rename('run', 'older'); os.mkdir('run'); Path('run/1').write_text('x')",
        "os.mkdir('tmp-2'); Path('tmp-2/w').write_text('x'); os.rename('tmp-2', 'step-2')",
        "os.symlink('best.pt', 'latest')",
        "os.truncate('best.pt', 1)",
        "Path('best.pt').open('r+').write('x')",
        "os.rmdir('empty')",
    ],
)
def test_what_a_script_changes_is_taken_back(change: str, tmp_path: Path) -> None:
    """Files and folders are as before: new ones gone, those that were changed, moved or removed back."""
    folder, session = tmp_path / "work", tmp_path / "session"
    session.mkdir()
    (folder / "run" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    for name in ("best.pt", "log", "run/1", "run/deep/2"):
        (folder / name).write_text(f"the user's {name}")
    before = contents(folder)
    subprocess.run([sys.executable, "-c", SCRIPT + change, session], cwd=folder, check=True)
    assert contents(folder) != before

    undo(session)

    assert contents(folder) == before


def test_what_another_process_made_stays(tmp_path: Path) -> None:
    """A folder that the rehearsal made is not removed with what somebody else has put there."""
    session = tmp_path / "session"
    session.mkdir()
    subprocess.run([sys.executable, "-c", f"{SCRIPT}os.mkdir('out')", session], cwd=tmp_path, check=True)
    (tmp_path / "out" / "model.pt").write_text("theirs")

    undo(session)

    assert (tmp_path / "out" / "model.pt").read_text() == "theirs"


def test_a_large_file_that_is_mapped_is_not_copied(tmp_path: Path) -> None:
    """A data set of many gigabytes that is opened to read and to write costs nothing."""
    session, data = tmp_path / "session", tmp_path / "train.bin"
    session.mkdir()
    with data.open("wb") as file:
        os.truncate(file.fileno(), 1 << 29)
    subprocess.run([sys.executable, "-c", f"{SCRIPT}open('train.bin', 'r+b')", session], cwd=tmp_path, check=True)

    assert sum(path.stat().st_size for path in session.iterdir()) < 1 << 20
    shutil.rmtree(session)
