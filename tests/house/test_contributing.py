"""Who follows CONTRIBUTING, or the page on plug-ins, to the letter gets what they promise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from documents import ROOT, between, files, shell
from helpers import Command

CONTRIBUTING = (ROOT / ".github/CONTRIBUTING.md").read_text()
ADDING = between(CONTRIBUTING, "Add a check", "Checks in a package of your own")
PLUGIN = (ROOT / "docs/plugins.md").read_text()
DEMO = ROOT / "docs/demo"
BIN = Path(sys.executable).parent


def run(command: str | list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command, or a block of a page, in a folder; the interpreter of the tests is the one that it finds."""
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **environ}
    words = ["bash", "-ec", command] if isinstance(command, str) else command
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=110, check=False)


def done(command: str, folder: Path, **environ: str) -> str:
    """Run a command that succeeds, and return its output."""
    finished = run(command, folder, **environ)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def write(shown: dict[str, str], folder: Path) -> None:
    """Write the files that a page shows."""
    for name, text in shown.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], str]:
    """Follow "Add a check" in a copy of the checkout that is installed beside it; yield what its commands print."""
    copy = tmp_path_factory.mktemp("followed") / "ddpdoctor"
    listed = done("git ls-files --cached --others --exclude-standard", ROOT).splitlines()
    for name in filter(lambda name: (ROOT / name).is_file(), listed):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    done("git init -q && git add -A && git -c user.name=n -c user.email=e commit -qm start", copy)
    done(f"{sys.executable} -m venv --without-pip ../venv", copy)
    environ = {"PATH": f"{copy.parent}/venv/bin:{BIN}:{os.environ['PATH']}"}
    packages = next((copy.parent / "venv").glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    done("python -m pip install -q --no-deps --no-build-isolation -e .", copy, **environ)
    write(files(ADDING), copy)
    return copy, environ, "".join(done(block, copy, **environ) for block in shell(ADDING))


@pytest.mark.timeout(240)
class TestAddACheck:
    """The worked example of CONTRIBUTING."""

    def test_all_three_facets_work(self, followed: tuple[Path, dict[str, str], str]) -> None:
        """The self-test finds the fault by a probe, in a running training and in a log, and nothing in the twins."""
        verdicts = [line.split() for line in followed[2].splitlines() if "too-many-workers" in line]

        assert [line[0] for line in verdicts] == ["ok", "ok", "ok"]
        assert sorted(line[3:] for line in verdicts) == [[], ["(log)"], ["(watch)"]]

    def test_nothing_else_changes(self, followed: tuple[Path, dict[str, str], str]) -> None:
        """The change holds the check's file, its fixtures, and the generated pages."""
        changed = {line[3:] for line in done("git status --porcelain -uall", followed[0]).splitlines()}
        names = ("broken.py", "healthy.py", "broken.log", "healthy.log")
        twins = {f"fixtures/too_many_workers/{name}" for name in names}

        assert changed == {"checks/data/too_many_workers.py", "checks/README.md", "fixtures/README.md"} | twins

    def test_the_change_passes_what_every_change_passes(self, followed: tuple[Path, dict[str, str], str]) -> None:
        """The linter, the tests of the registry and of the pages have nothing to say."""
        copy, environ, _ = followed
        done("ruff check checks/data fixtures && ruff format --check checks/data fixtures", copy, **environ)
        done(
            "python -m pytest -q -p no:cacheprovider tests/house/test_registry.py tests/house/test_documents.py"
            " -k 'too-many-workers or fixture or folder or lists'",
            copy,
            **environ,
        )
        page = done("ddpdoctor explain too-many-workers", copy, **environ)
        assert "num_workers" in page


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Install the plug-in of the page; yield the folder that it is installed in, and what the page's commands print."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    write(files(PLUGIN), source)
    printed = [done(block, source, PIP_TARGET=str(target), PYTHONPATH=str(target)) for block in shell(PLUGIN)]
    return target, printed[-1]


CRASHING = '''"""A check that crashes wherever it is asked.

## What happens
## How to be sure
## How to mend it
## Versions and sources
"""

from ddpdoctor.check import Ailment, Failed, Joined, Severity, log_pattern, probe, watch

AILMENT = Ailment("ACME002", Severity.ERROR)


@probe
def at_the_checkup(facts):
    raise SystemExit(7)


@watch(Joined)
def when_ranks_join(event):
    raise KeyError("of the plug-in")


@watch(Failed)
def when_a_rank_fails(event):
    raise RecursionError("of the plug-in")


@log_pattern("Expected to have finished reduction")
def in_logs(record):
    return 1 / 0
'''


@pytest.fixture(scope="module")
def crashing(plugin: tuple[Path, str]) -> str:
    """Add a check that crashes to the installed plug-in, and return the folder."""
    (plugin[0] / "acme_ddpdoctor/checks/storage/always_crashes.py").write_text(CRASHING)
    return str(plugin[0])


class TestAPlugin:
    """The worked example of the page on plug-ins, as pip installs it."""

    def test_is_listed_and_passes_its_self_test(self, plugin: tuple[Path, str]) -> None:
        """All three facets see its broken case and are silent on its healthy twin."""
        verdicts = [line.split()[0] for line in plugin[1].splitlines()[-4:-1]]

        assert plugin[1].count("ACME001") == 4
        assert verdicts == ["ok", "ok", "ok"]

    def test_that_crashes_ends_no_other_check(self, crashing: str, tmp_path: Path) -> None:
        """The others say what they find, and the report says which one crashed."""
        command = "ddpdoctor check --only misspelt-variable,always-crashes --format json --output report.json"
        finished = run(command, tmp_path, PYTHONPATH=crashing, MASTER_ADR="10.0.0.7")
        report = json.loads((tmp_path / "report.json").read_text())

        assert finished.returncode == 3
        results = {each["code"]: each["status"] for each in report["results"]}
        assert results == {"DDP101": "failed", "ACME002": "crashed"}

    def test_that_crashes_ends_no_explanation_of_a_log(self, crashing: str, tmp_path: Path) -> None:
        """The cause is named by another check."""
        said = "RuntimeError: Expected to have finished reduction in the prior iteration\n"
        (tmp_path / "train.log").write_text(said)
        finished = run("ddpdoctor explain --format json train.log", tmp_path, PYTHONPATH=crashing)
        answer = json.loads(finished.stdout)

        assert finished.returncode == 1
        assert answer["first"]["code"].startswith("DDP5")
        assert [fault for fault in answer["faults"] if "ACME002 always-crashes crashed: ZeroDivisionError" in fault]

    @pytest.mark.parametrize("trained", [("bypass.py", 0, "DDP560"), ("train.py", 1, "DDP501")])
    def test_that_crashes_ends_neither_monitor_nor_training(
        self, crashing: str, torchrun: Command, tmp_path: Path, trained: tuple[str, int, str]
    ) -> None:
        """The training comes to its own end, what it does wrong is found, and the crash is told once."""
        script, status, code = trained
        command = f"ddpdoctor run --report report.json -- {' '.join(torchrun)} {DEMO / script}"
        finished = run(command, tmp_path, PYTHONPATH=crashing, COLUMNS="1000")
        report = json.loads((tmp_path / "report.json").read_text())

        assert finished.returncode == status
        assert [each["code"] for each in report["results"] if each["status"] == "failed"] == [code]
        assert finished.stderr.count("crashed ACME002 always-crashes: this check itself failed: KeyError") == 1
        if status:
            assert f"[rank0]: ddpdoctor: {code}" in finished.stderr
