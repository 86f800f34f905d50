"""Settings of a project: ``[tool.ddpdoctor]`` of pyproject.toml, and ddpdoctor.toml."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from documents import BLOCK, ROOT
from helpers import Run

from ddpdoctor.cli import cli
from ddpdoctor.cli.options.settings import find_settings
from ddpdoctor.facets import BadTarget

WRITTEN = {"output", "report"}
REFUSED = {
    "nprok = 3": "there is no setting nprok; did you mean nproc?",
    'fail_on = "error"': "there is no setting fail_on; did you mean fail-on?",
    "[check]\nnproc = 3": "there is no setting check",
    "verbose = true": "there is no setting verbose",
    'output = "report.json"': "there is no setting output",
    'nproc = "3"': 'nproc must be an integer, and is "3"',
    "nproc = true": "nproc must be an integer, and is true",
    "nproc = 2.5": "nproc must be an integer, and is 2.5",
    "timeout = 1979-05-27": 'timeout must be a number, and is "1979-05-27"',
    "skip = 3": "skip must be an array of strings, and is 3",
    'skip = ["gpu", 3]': 'skip must be an array of strings, and is ["gpu", 3]',
    'model = ["train.py:f"]': 'model must be a string, and is ["train.py:f"]',
    "nproc = 0": "nproc: 0 is not in the range",
    "hang-after = 0": "hang-after: 0.0 is not in the range",
    'fail-on = "disaster"': "fail-on: 'disaster' is not one of",
    'skip = ["gpu", "unused-paramters"]': "skip: there is no check or area unused-paramters; did you mean unused-param",
    'model = "tarin.py:f"': "model: there is no file tarin.py; did you mean train.py?",
    'loader = "train.py"': "loader: 'train.py' is not of the form",
    'checkpoint = "last.pt"': "checkpoint: there is no file last.pt",
    "nproc = ": "is not valid TOML",
}  # fmt: skip


def statuses(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return how each check ended, by its code."""
    return {each["code"]: each["status"] for each in json.loads(done.stdout)["results"]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with a training in it, and a folder below it."""
    (tmp_path / "train.py").write_text("import torch\n\n\ndef build_model():\n    return torch.nn.Linear(2, 2)\n")
    (tmp_path / "sub").mkdir()
    return tmp_path


@pytest.mark.parametrize("shared", [False, True], ids=["ddpdoctor.toml", "pyproject.toml"])
def test_settings_stand_in_for_options_and_what_is_typed_wins(ddpdoctor: Run, project: Path, *, shared: bool) -> None:
    """From any folder below; targets are those of the folder that the settings are in."""
    text = 'only = "DDP101,DDP503"\nmodel = "train.py:build_model"\n'
    name, head = ("pyproject.toml", '[project]\nname = "x"\n[tool.ddpdoctor]\n') if shared else ("ddpdoctor.toml", "")
    (project / name).write_text(head + text)
    json_report = ("check", "--format", "json")

    assert statuses(ddpdoctor(*json_report, cwd=project / "sub")) == {"DDP101": "passed", "DDP503": "passed"}
    assert set(statuses(ddpdoctor(*json_report, "--only", "DDP105", cwd=project))) == {"DDP105"}


def test_a_setting_is_the_default_that_the_commands_get(ddpdoctor: Run, project: Path) -> None:
    """Of run, too: it ends a hang when the setting says so."""
    (project / "ddpdoctor.toml").write_text('fail-on = "note"\nonly = ["DDP106"]\n')
    variables = {"TORCH_CPP_LOG_LEVEL": "INFO", "NCCL_DEBUG": "TRACE"}

    assert ddpdoctor("check", cwd=project, **variables).returncode == 1
    assert ddpdoctor("check", "--fail-on", "error", cwd=project, **variables).returncode == 0


def test_the_nearest_folder_counts_and_in_a_folder_the_own_file(project: Path) -> None:
    """A pyproject.toml without the table, and one that is not TOML and says nothing about ddpdoctor, are passed by."""
    (project / "pyproject.toml").write_text("[tool.ddpdoctor]\nnproc = 1\n")
    (project / "sub" / "pyproject.toml").write_text("[tool.ruff]\nline-length = ")

    assert find_settings(project / "sub").values == {"nproc": 1}
    (project / "ddpdoctor.toml").write_text("nproc = 2\n")
    assert find_settings(project / "sub").values == {"nproc": 2}
    (project / "sub" / "pyproject.toml").write_text("[tool.ddpdoctor]\nnproc = 3\n")
    assert find_settings(project / "sub").values == {"nproc": 3}


def test_a_folder_of_everybodys_has_no_settings(project: Path) -> None:
    """What somebody leaves in /tmp is not run by those who work below it."""
    (project / "ddpdoctor.toml").write_text('model = "evil.py:f"\n')
    project.chmod(0o1777)

    assert not find_settings(project / "sub").values


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text.replace("\n", " "))
def test_a_wrong_setting_is_refused_with_its_file_and_name(ddpdoctor: Run, project: Path, text: str) -> None:
    """One line, status 2, and nothing is done."""
    (project / "ddpdoctor.toml").write_text(text)
    done = ddpdoctor("check", "--only", "DDP101", cwd=project)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(project / "ddpdoctor.toml") in done.stderr
    assert REFUSED[text] in done.stderr


@pytest.mark.parametrize(("text", "status"), [("nproc = true", 2), ('skip = ["foo"]', 2), ('model = "gone.py:f"', 0)])
def test_one_command_refuses_the_settings_of_another(ddpdoctor: Run, project: Path, text: str, status: int) -> None:
    """A file is right or wrong as a whole; whether it names files that are there, the command asks that uses them."""
    (project / "ddpdoctor.toml").write_text(text)

    assert ddpdoctor("run", "true", cwd=project).returncode == status


def test_a_wrong_table_of_pyproject_is_named(ddpdoctor: Run, project: Path) -> None:
    """The refusal says in which table."""
    (project / "pyproject.toml").write_text("[tool.ddpdoctor]\nnproc = 'two'\n")
    done = ddpdoctor("check", cwd=project / "sub")

    assert done.returncode == 2
    assert f"{project / 'pyproject.toml'} [tool.ddpdoctor]: nproc must be an integer" in done.stderr


@pytest.mark.parametrize("command", [("check", "--help"), ("list", "DDP101"), ("explain", "DDP101"), ("--version",)])
def test_wrong_settings_are_nothing_to_what_has_none(ddpdoctor: Run, project: Path, command: tuple[str, ...]) -> None:
    """Help is there when it is needed most."""
    (project / "ddpdoctor.toml").write_text("nproc = ")

    assert ddpdoctor(*command, cwd=project).returncode == 0


def test_a_file_that_is_named_elsewhere_is_not_missed(ddpdoctor: Run, project: Path) -> None:
    """What is typed instead of a setting makes that one harmless."""
    (project / "ddpdoctor.toml").write_text('model = "gone.py:f"\n')

    assert ddpdoctor("check", "--only", "DDP503", "--model", "train.py:build_model", cwd=project).returncode == 0


def test_the_example_of_the_documents_is_understood(ddpdoctor: Run, project: Path) -> None:
    """It is accepted as it stands there, and holds no more than there is."""
    blocks = BLOCK.finditer((ROOT / "docs/settings.md").read_text())
    (project / "pyproject.toml").write_text(next(each["text"] for each in blocks if each["kind"] == "toml"))
    (project / "train.py").write_text("build_model = example_batch = build_loader = None\n")

    assert ddpdoctor("check", "--only", "DDP101", cwd=project).stderr == ""


@pytest.mark.parametrize("command", ["check", "run"])
def test_every_option_that_has_a_value_can_be_set(project: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """None is forgotten: of each it is known what it must be."""
    monkeypatch.chdir(project)
    options = [each for each in _command(command).params if isinstance(each, click.Option) and not each.is_flag]
    names = {max(each.opts, key=len)[2:] for each in options} - WRITTEN

    assert names
    for name in names:
        (project / "ddpdoctor.toml").write_text(f"{name} = [{{}}]")
        with pytest.raises(BadTarget, match=f": {name} must be "):
            CliRunner().invoke(cli, ["run", "true"], catch_exceptions=False)


def _command(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
def test_python_310_without_tomli_is_one_clear_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where there are settings to be read."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    monkeypatch.setitem(sys.modules, "tomli", None)
    (project / "pyproject.toml").write_text('[project]\ndependencies = ["ddpdoctor"]\n')

    assert not find_settings(project).values
    (project / "pyproject.toml").write_text("[tool.ddpdoctor]\nnproc = 3\n")
    with pytest.raises(BadTarget, match=r"pyproject\.toml holds settings; .* Python 3\.11, or: pip install tomli"):
        find_settings(project)
