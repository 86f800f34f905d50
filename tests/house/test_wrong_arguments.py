"""What is typed wrongly is refused at once, in one line that says what was meant; status 2."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import ROOT, Run

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

IMPORTED = "import pathlib; pathlib.Path(r'{}').touch()\n"
PYTHON = "python" if shutil.which("python") else "python3"  # Debian's own has the second name alone
WRONG = {
    ("check", "--model", "tarin.py:build"): "there is no file tarin.py; did you mean train.py?",
    ("check", "--model", "nowhere/train.py:build"): "there is no folder nowhere",
    ("check", "--model", "train.py:no_such_name"): "train.py has no 'no_such_name'",
    ("check", "--loader", "no_such_module:build"): "there is no module no_such_module",
    ("check", "--model", "train.py"): "is not of the form FILE.py:NAME",
    ("check", "--checkpoint", "lats.pt"): "there is no file lats.pt; did you mean last.pt?",
    ("check", "--checkpoint", "pipe"): "pipe is a pipe, not a regular file",
    ("check", "--only", "unused-paramters"): "did you mean unused-parameters",
    ("check", "--skip", "gpu,datta"): "there is no check or area datta; did you mean data?",
    ("check", "--skip", "zzz"): "the areas are checkpoint, collectives, data",
    (
        "check",
        "train.py",
    ): f"`ddpdoctor check -- {PYTHON} train.py` rehearses the training, `ddpdoctor check --model train.py",
    ("check", "--", "tarin.py"): "there is no file tarin.py; did you mean train.py?",
    ("check", "DDP501"): "did you mean ddpdoctor check --only DDP501?",
    ("check", "--chekpoint", "last.pt"): "--checkpoint",
    ("run", "train.py", "--lr", "1"): f"train.py is a file, not a command: ddpdoctor run -- {PYTHON} train.py --lr 1",
    ("run", "./train.sh"): "ddpdoctor run -- bash ./train.sh",
    ("run", "./data.bin"): "./data.bin is a file, not a command: it is not executable",
    ("run", "trochrun", "train.py"): "there is no command trochrun; did you mean torchrun?",
    ("run", "--hangafter", "3", "--", "true"): "--hang-after",
    ("run",): "COMMAND",
    ("repair", "last.pt", "--dry-run", "--model", "tarin.py:build"): "did you mean train.py?",
    ("list", "dta"): "ddpdoctor list: there is no check or area dta; did you mean data?",
    ("selftest", "unused-paramters"): "did you mean unused-parameters",
    ("inspect", "lats.pt"): "there is no file lats.pt; did you mean last.pt?",
    ("inspect", "socket"): "socket is a socket, not a regular file",
    ("inspect", "/dev/null"): "/dev/null is a device, not a regular file",
    ("inspect", "last.pt", "--like", "lats.pt"): "did you mean last.pt?",
    ("explain", "tarin.log"): "there is no file tarin.log; did you mean train.log?",
    ("explain", "nowhere/train.log"): "there is no folder nowhere",
    ("explain", "unused-paramters"): "there is no log and no check unused-paramters; did you mean unused-parameters",
    ("explain", "DDP999"): "there is no check DDP999",
    ("explain", "DDP501", "zzz"): "there is no log and no check zzz",
    ("explain", "train.log", "DDP501"): "DDP501 is a check, and train.log a log: name one or the other",
    ("explain", ""): "there is no log and no check",
    ("completion", "tcsh"): "ddpdoctor completion: 'tcsh' is not one of 'bash', 'zsh', 'fish'",
    ("completion",): "Choose from: bash, zsh, fish",
    ("stuck", "tarin.log"): "there is no file tarin.log; did you mean train.log?",
    ("chekc",): "there is no command chekc; did you mean check?",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder with what users have, in which torch tells by a file that it was imported."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("train.py", "train.sh", "train.log", "last.pt", "data.bin"):
        (folder / name).touch()
    os.mkfifo(folder / "pipe")
    (tmp_path / "other" / "torch").mkdir(parents=True)
    (tmp_path / "other" / "torch" / "__init__.py").write_text(IMPORTED.format(tmp_path / "imported"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        yield folder
    assert not (tmp_path / "imported").exists()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("typed", WRONG, ids=" ".join)
def test_it_is_refused_before_any_work_in_one_line_that_says_what_was_meant(
    ddpdoctor: Run, typed: tuple[str, ...]
) -> None:
    """Nothing was printed, no job was started that imports torch."""
    done = ddpdoctor(*typed)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ddpdoctor")
    assert done.stderr.count("\n") == 1, done.stderr
    assert WRONG[typed] in done.stderr


def test_nothing_typed_at_all_shows_the_commands(ddpdoctor: Run) -> None:
    """A newcomer learns what there is."""
    done = ddpdoctor()

    assert done.returncode == 2
    assert "explain" in done.stderr


def test_options_behind_the_command_are_the_commands(ddpdoctor: Run) -> None:
    """Whether -- stands there or not."""
    for dashes in ((), ("--",)):
        assert ddpdoctor("run", *dashes, "echo", "--hang-after", "3").stdout == "--hang-after 3\n"


@pytest.fixture
def without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a Python without torch: -S, and a folder with links to all other packages."""
    for path in map(Path, sys.path):
        for package in path.glob("*") if path.name == "site-packages" else ():
            if not package.name.startswith(("torch", "functorch", "__editable__")) and package.suffix != ".pth":
                (tmp_path / package.name).symlink_to(package)
    (tmp_path / "ddpdoctor").unlink(missing_ok=True)
    (tmp_path / "ddpdoctor").mkdir()
    for path in (*(ROOT / "ddpdoctor").iterdir(), ROOT / "checks", ROOT / "fixtures"):
        (tmp_path / "ddpdoctor" / path.name).symlink_to(path)
    (tmp_path / "train.py").write_text("from anywhere import *\n")  # what it has is not known
    (tmp_path / "last.pt").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize(
    "typed",
    [
        ("check", "--model", "train.py:build"),
        ("check", "--only", "data", "--loader", "train.py:build"),
        ("check", "--", "torchrun", "train.py"),
        ("run", "torchrun", "train.py"),
        ("repair", "last.pt", "--dry-run", "--model", "train.py:build"),
        ("selftest", "unused-parameters"),
    ],
    ids=" ".join,
)
def test_where_torch_is_not_installed_one_line_says_how_to_install_it(typed: tuple[str, ...]) -> None:
    """Of each command that needs it."""
    done = no_torch(*typed)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "torch is not installed: pip install torch (" in done.stderr
    assert "https://pytorch.org/get-started/locally/" in done.stderr


@pytest.mark.usefixtures("without_torch")
def test_a_checkup_without_torch_finds_that(checks: dict[str, Check]) -> None:
    """The rest is examined; how to install torch is the fix."""
    done = no_torch("check", "--only", "environment,host,collectives", "--format", "json")
    results = {each["slug"]: each for each in json.loads(done.stdout)["results"]}

    assert done.returncode == 1
    assert results["torch-not-importable"]["findings"][0]["fix"]["command"] == "pip install torch"
    assert results["disk-space-too-low"]["status"] == "passed"
    assert "pip install torch" in results["ddp-does-not-average"]["reason"]
    assert results.keys() <= checks.keys()


def no_torch(*args: str) -> subprocess.CompletedProcess[str]:
    """Run the command line by a Python that looks for packages in PYTHONPATH alone."""
    command = [sys.executable, "-S", "-m", "ddpdoctor", *args]
    environ = {**os.environ, "PATH": os.defpath, "COLUMNS": "1000"}
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)
