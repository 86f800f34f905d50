"""Stacks of processes in a container name files that lie elsewhere here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddpdoctor.stuck.looks import files
from ddpdoctor.watch.user_frames import is_users


@pytest.fixture
def spaces(monkeypatch: pytest.MonkeyPatch) -> dict[int | str, str]:
    """Return the mount namespaces of processes, which a test makes up."""
    made: dict[int | str, str] = {"self": "mnt:[1]", 7: "mnt:[1]", 8: "mnt:[2]", 9: "mnt:[2]", 10: "mnt:[3]"}
    monkeypatch.setattr(files, "_space", made.__getitem__)
    return made


@pytest.mark.parametrize(("pids", "root"), [([7], ""), ([9, 8], "/proc/8/root"), ([7, 8], ""), ([8, 10], ""), ([], "")])
@pytest.mark.usefixtures("spaces")
def test_ranks_of_one_container_share_its_files(pids: list[int], root: str) -> None:
    """Where they are in several, their lines are compared by the names that they have there."""
    assert files.root_of(pids) == root


def test_a_file_is_found_where_it_is(tmp_path: Path) -> None:
    """One that both see is named as it is, one that lies in the container alone by a path that leads there."""
    both, inner = tmp_path / "both.py", tmp_path / "root" / "app" / "train.py"
    both.touch()
    inner.parent.mkdir(parents=True)
    inner.touch()
    root = str(tmp_path / "root")
    assert files.named_here("/app/train.py", 1, root) == str(inner)
    assert files.named_here("/app/train.py", 1, "") == "/app/train.py"
    assert files.named_here(str(both), 1, root) == str(both)
    assert files.named_here("train.py", os.getpid(), "") == f"{Path.cwd()}/train.py"
    assert files.named_here("<string>", 1, root) == "<string>"
    assert files.as_there("/proc/8/root/app/train.py") == "/app/train.py"
    assert files.as_there("/app/proc/8/root/x.py") == "/app/proc/8/root/x.py"


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/opt/conda/lib/python3.10/threading.py", False),
        ("/proc/8/root/usr/lib/python3.12/queue.py", False),
        ("/usr/lib64/python3.13t/selectors.py", False),
        ("/proc/8/root/app/train.py", True),
        ("/home/me/lib/python/train.py", True),
    ],
)
def test_the_standard_library_of_another_python_is_nobodys_code(file: str, *, own: bool) -> None:
    """The command need not run in the interpreter of the ranks."""
    assert is_users(file) == own
