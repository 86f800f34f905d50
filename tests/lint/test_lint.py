"""``ddpdoctor lint``: every rule on its programs, what it prints, what it is told to leave out, and bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from helpers import CHECKS, ROOT, Run
from hypothesis import given, strategies as st

from ddpdoctor.facets import Check, Instrument
from ddpdoctor.findings import Edit
from ddpdoctor.lint import LIKELY
from ddpdoctor.lint.edits import applied
from ddpdoctor.lint.mend import mended
from ddpdoctor.lint.run import Wanted, lint, lint_text
from ddpdoctor.selftest.result import fixture
from ddpdoctor.selftest.sources import linter, programs, try_sources

RULES = tuple(check for check in CHECKS if check.of(Instrument.LINT))
ALL = Wanted(RULES, confidence=LIKELY)
PROGRAM = """\
import os
import torch.distributed as dist

if os.environ["RANK"] == 0:
    print("first")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a file with one error, in its fourth line."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("check", RULES, ids=lambda check: check.slug)
def test_a_rule_finds_each_broken_program_at_its_line_and_no_rule_speaks_of_the_healthy_ones(check: Check) -> None:
    """The programs lie in the fixture folder of the check."""
    with linter(CHECKS) as linted:
        trial = try_sources(check, linted)

    assert trial.verdict == "ok", f"{trial.broken.reason} {trial.healthy.reason}"


@pytest.mark.parametrize("check", RULES, ids=lambda check: check.slug)
def test_an_edit_mends_its_finding_and_a_second_time_nothing_is_changed(check: Check) -> None:
    """What --fix writes is Python, has one finding less, and no new one."""
    for program in programs(fixture(check, "broken.sources")):
        name, text = program.files[0]
        before = lint_text(name, text.encode(), ALL).found
        if not any(each.finding.fix.edits for each in before if each.check is check):
            continue
        once = mended_text(name, text)
        after = lint_text(name, once.encode(), ALL)

        assert not after.faults
        assert len(after.found) < len(before), program.shows
        assert mended_text(name, once) == once


def mended_text(name: str, text: str) -> str:
    """Return what --fix makes of a text."""
    folder = Path(name)
    folder.write_text(text)
    try:
        found = lint_text(name, text.encode(), ALL).found
        return next((after for _, _, after in mended(found, ALL)), text)
    finally:
        folder.unlink()


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test write where nobody else does."""
    monkeypatch.chdir(tmp_path)


def test_findings_are_told_with_place_and_fix_and_make_the_exit_status_1(ddpdoctor: Run, script: Path) -> None:
    """File, line and column; the line that is wrong; a diff; the last line counts."""
    done = ddpdoctor("lint", script.name, cwd=script.parent)

    assert done.returncode == 1
    assert "error DDP120 variable-is-text: the text of RANK and the number 0 are never equal" in done.stdout
    assert "train.py:4:4" in done.stdout
    assert '+if int(os.environ["RANK"]) == 0:' in done.stdout
    assert "1 error: 1 file, 1 of them about distributed training" in done.stdout


def test_what_confidence_withholds_is_counted(ddpdoctor: Run, tmp_path: Path) -> None:
    """The last line says how many notes and open findings there are besides, where they are not told; else nothing."""
    (tmp_path / "train.py").write_text(
        "import torch.distributed as dist\n\n\ndef main():\n    dist.init_process_group('gloo')\n    dist.barrier()\n"
        "\n\nif __name__ == '__main__':\n    main()\n"
    )
    quiet, told = (
        ddpdoctor("lint", "--format", "brief", *more, ".", cwd=tmp_path).stdout
        for more in ((), ("--confidence", "likely"))
    )

    notes = told.count("DDP")
    assert notes
    assert f"; {notes} more: --confidence likely" in quiet
    assert "more:" not in told


def test_one_rank_that_gathers_shards_hangs_and_saves_no_part(ddpdoctor: Run, tmp_path: Path) -> None:
    """What it would save are whole tensors: that the others are missing is told, and no file without their parts."""
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\nimport torch.distributed as dist\nfrom torch.distributed.fsdp import fully_shard\n\n"
        "model = torch.nn.Linear(8, 8)\nfully_shard(model)\nif dist.get_rank() == 0:\n"
        "    torch.save({name: each.full_tensor() for name, each in model.state_dict().items()}, 'last.pt')\n"
    )

    done = ddpdoctor("lint", str(path))

    assert "DDP723" in done.stdout
    assert "DDP837" not in done.stdout


def test_nothing_to_find_is_exit_status_0_and_nothing_to_look_at_is_2(ddpdoctor: Run, tmp_path: Path) -> None:
    """A folder without a Python file, and a file that is not there, are wrong usage."""
    assert ddpdoctor("lint", cwd=tmp_path).returncode == 2
    (tmp_path / "fine.py").write_text("import torch\n")

    assert ddpdoctor("lint", cwd=tmp_path).returncode == 0
    missing = ddpdoctor("lint", "find.py", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (
        2,
        "ddpdoctor: there is no file or folder find.py; did you mean fine.py?\n",
    )


def test_standard_input_is_the_file_that_the_editor_says(ddpdoctor: Run, tmp_path: Path) -> None:
    """The name stands in the findings; the file itself need not be there."""
    found = lint_text("pkg/train.py", PROGRAM.encode(), ALL).found

    assert [str(each.finding.place) for each in found] == ["pkg/train.py:4:4"]
    assert ddpdoctor("lint", "-", "other.py", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("comment", "is_quiet", "says"),
    [
        ("# ddpdoctor: ignore[DDP120] it is text on purpose", True, ""),
        ("# ddpdoctor: ignore", True, ""),
        ("# noqa: DDP120", True, ""),
        ("# noqa", True, ""),
        ("# noqa: E501", False, ""),
        ("# ddpdoctor: ignore[variable-is-text]", True, ""),
        ("# ddpdoctor: ignore[DDP604]", False, "ignores ddp604, and there is nothing to ignore"),
    ],
)
def test_a_comment_keeps_its_line_quiet_and_a_useless_one_is_told(comment: str, says: str, *, is_quiet: bool) -> None:
    """Only of comments that are ddpdoctor's own; other linters share ``noqa``."""
    text = PROGRAM.replace("== 0:", f"== 0:  {comment}")
    done = lint_text("train.py", text.encode(), ALL)

    assert (not done.found) is is_quiet
    assert (says in "".join(done.useless)) if says else not done.useless


def test_checks_are_selected_and_ignored_by_code_slug_and_area(ddpdoctor: Run, script: Path) -> None:
    """A check that reads no source is refused."""
    for options, status in (
        (("--select", "DDP120"), 1),
        (("--select", "data"), 0),
        (("--ignore", "variable-is-text"), 0),
        (("--select", "DDP202"), 2),
    ):
        assert ddpdoctor("lint", *options, cwd=script.parent).returncode == status, options


def test_settings_of_the_table_stand_in_for_options(ddpdoctor: Run, script: Path) -> None:
    """Excluded files are not looked at in folders; one that is named is. An unknown setting is refused."""
    settings_file = script.parent / "ddpdoctor.toml"
    settings_file.write_text('[lint]\nignore = ["DDP120"]\n')
    assert ddpdoctor("lint", cwd=script.parent).returncode == 0
    settings_file.write_text('[lint]\nexclude = ["train.py", "old/*"]\n')
    assert ddpdoctor("lint", cwd=script.parent).returncode == 2
    assert ddpdoctor("lint", "train.py", cwd=script.parent).returncode == 1
    settings_file.write_text('[lint]\nselct = "data"\n')
    refused = ddpdoctor("lint", cwd=script.parent)

    assert refused.returncode == 2
    assert "there is no setting selct; did you mean select?" in refused.stderr


def test_each_format_holds_the_finding(ddpdoctor: Run, script: Path) -> None:
    """Each can be read by what it is made for, and goes to a file as well."""
    said = {
        form: ddpdoctor("lint", "--format", form, "train.py", cwd=script.parent).stdout
        for form in ("brief", "github", "sarif", "json", "junit")
    }

    assert said["brief"].startswith("train.py:4:4: error DDP120 variable-is-text: ")
    assert said["github"].startswith("::error file=train.py,line=4,col=4,title=DDP120 variable-is-text::")
    result = json.loads(said["sarif"])["runs"][0]["results"][0]
    assert result["ruleId"] == "DDP120"
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 4, "startColumn": 4}
    finding = json.loads(said["json"])["findings"][0]
    assert (finding["code"], finding["place"]["line"], finding["confidence"]) == ("DDP120", 4, "certain")
    assert [each.get("name") for each in ET.fromstring(said["junit"]).iter("failure")] == [None]  # noqa: S314 - ours
    done = ddpdoctor("lint", "--format", "json", "--output", "out.json", "train.py", cwd=script.parent)
    assert done.stdout == ""
    assert json.loads((script.parent / "out.json").read_text())["exit_status"] == 1


def test_fix_changes_the_file_once_and_diff_leaves_it(ddpdoctor: Run, script: Path) -> None:
    """The patch of --diff is what --fix does; line ends stay as they are."""
    script.write_bytes(PROGRAM.replace("\n", "\r\n").encode())
    patch = ddpdoctor("lint", "--diff", "train.py", cwd=script.parent)
    assert '+if int(os.environ["RANK"]) == 0:' in patch.stdout
    assert script.read_bytes() == PROGRAM.replace("\n", "\r\n").encode()

    assert ddpdoctor("lint", "--fix", "train.py", cwd=script.parent).returncode == 0
    mended_bytes = script.read_bytes()
    assert (
        mended_bytes
        == PROGRAM.replace('os.environ["RANK"] ==', 'int(os.environ["RANK"]) ==').replace("\n", "\r\n").encode()
    )
    ddpdoctor("lint", "--fix", "train.py", cwd=script.parent)
    assert script.read_bytes() == mended_bytes


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"import torch.distributed\nx = '\xff'\n", "byte 30 is not utf-8"),
        (b"import torch.distributed\nprint 'x'\n", "Python 2 syntax"),
        (b"import torch.distributed\ndef f(:\n", "a syntax error"),
        (b"# coding: nonsense\nimport torch.distributed\n", "unknown encoding"),
        (b"import torch.distributed\nx = " + b"(" * 5000 + b")" * 5000, "nested"),
        (b"import torch.distributed\nx = " + b"-" * 100_000 + b"1", ""),
        (b"import torch.distributed as d\nx = " + b"1 + " * 3000 + b"1\nd.barrier(x)\n", "nested too deeply"),
        (b"import torch.distributed\0", "null bytes"),
        (b"import torch.distributed\n" + b"# x\n" * 2_000_000, "5,000,000"),
    ],
    ids=["not UTF-8", "Python 2", "no Python", "encoding", "deep", "deeper", "long", "null", "huge"],
)
def test_what_cannot_be_parsed_is_said_in_one_line(data: bytes, why: str) -> None:
    """With the file, and why; nothing crashes."""
    done = lint_text("train.py", data, ALL)

    assert len(done.faults) == 1
    assert done.faults[0].startswith("train.py")
    assert "\n" not in done.faults[0]
    assert why in done.faults[0]
    assert not done.crashes


def test_links_in_a_circle_and_unreadable_files_end(tmp_path: Path) -> None:
    """A folder that links to itself is walked once; a link to nothing is left out."""
    from ddpdoctor.lint.files import find

    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")

    assert find((str(tmp_path),), (), tmp_path) == [tmp_path / "train.py"]


SOURCES = [
    text
    for check in RULES
    for name in ("broken.sources", "healthy.sources")
    for program in programs(fixture(check, name))
    for _, text in program.files
]


@given(st.sampled_from(SOURCES), st.data())
def test_whatever_is_cut_out_of_a_program_nothing_crashes(text: str, data: st.DataObject) -> None:
    """Lines left out, doubled or joined, characters cut: a rule reads it, or it is told that nobody can."""
    lines = text.split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(lines) - 1, 0)))
        what = data.draw(st.sampled_from(("drop", "double", "cut", "indent")))
        line = lines[at] if lines else ""
        changed = {"drop": [], "double": [line, line], "cut": [line[: len(line) // 2]], "indent": [f"    {line}"]}
        lines[at : at + 1] = changed[what]

    assert not lint_text("train.py", "\n".join(lines).encode(), ALL).crashes


def test_a_loop_of_assignments_is_followed_to_no_end() -> None:
    """Names that are made of each other, functions that call each other, a class that is its own parent."""
    text = (
        "import torch.distributed as dist\na = b\nb = a\nif a == 0 and f():\n    dist.barrier()\n"
        "def f():\n    return g()\ndef g():\n    return f()\nclass A(A):\n    x = A\nmodel = model.module\n"
        "def h(m):\n    h(m)\n    m.state_dict()\n"
    )

    assert not lint_text("train.py", text.encode(), ALL).crashes


def test_an_edit_is_placed_by_bytes_as_the_parser_counts() -> None:
    """Characters of several bytes before it, and line ends of any kind, do not move it."""
    assert applied("é = 1\r\nx = 2\r\n", [Edit(2, 4, 2, 5, "3")]) == "é = 1\r\nx = 3\r\n"
    assert applied("é = 1\n", [Edit(1, 5, 1, 6, "2")]) == "é = 2\n"


def test_lint_loads_neither_torch_nor_the_watch(tmp_path: Path) -> None:
    """It works where torch is not installed, and starts at once."""
    import subprocess

    (tmp_path / "train.py").write_text(PROGRAM)
    code = (
        "import sys; from ddpdoctor.cli import cli\n"
        "try: cli(['lint', 'train.py'])\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)

    assert done.stdout.endswith("False\n")


def test_a_project_is_read_across_its_files() -> None:
    """What another file does, that imports this one or is imported, keeps a rule quiet; without that file it speaks."""
    check = next(each for each in RULES if each.slug == "set-epoch-not-called")
    program = next(each for each in programs(fixture(check, "healthy.sources")) if len(each.files) > 1)
    with linter(CHECKS) as linted:
        assert linted(program) == ([], "")

    path = Path("train.py")
    path.write_text(
        program.files[0][1].replace("from engine import train", "def train(loader, epoch):\n    for x in loader: pass")
    )
    assert [each.check for each in lint([path], ALL).found] == [check]


def test_a_baseline_keeps_what_is_known_quiet_until_its_line_changes(ddpdoctor: Run, script: Path) -> None:
    """Lines above it do not matter, a second one of its kind does; what is gone is told; another file is refused."""
    folder = script.parent
    assert ddpdoctor("lint", "--write-baseline", "known.json", cwd=folder).returncode == 0
    script.write_text("# above\n\n" + PROGRAM)
    quiet = ddpdoctor("lint", "--baseline", "known.json", cwd=folder)
    assert (quiet.returncode, quiet.stderr) == (0, "")

    script.write_text(PROGRAM + 'if os.environ["RANK"] == 0:\n    pass\n')
    assert ddpdoctor("lint", "--baseline", "known.json", cwd=folder).returncode == 1
    script.write_text("import torch\n")
    assert (
        "1 of the findings in known.json are gone" in ddpdoctor("lint", "--baseline", "known.json", cwd=folder).stderr
    )
    for text in ("{}", "[", '{"form": "ddpdoctor-baseline/1", "findings": [1]}'):
        (folder / "known.json").write_text(text)
        refused = ddpdoctor("lint", "--baseline", "known.json", cwd=folder)
        assert refused.returncode == 2
        assert refused.stderr.startswith("ddpdoctor: known.json is no baseline")


def test_the_action_starts_the_command_with_options_that_it_has() -> None:
    """Each option in the file of the action is one of ddpdoctor lint."""
    from ddpdoctor.cli.lint import lint as command

    options = {each for option in command.params for each in option.opts}
    text = (ROOT / ".github" / "actions" / "lint" / "action.yml").read_text()
    used = {word for line in text.splitlines() if '"$lint" lint' in line for word in line.split() if word[:2] == "--"}
    assert used
    assert used <= options


def test_a_file_that_is_no_text_is_no_success(ddpdoctor: Run, tmp_path: Path) -> None:
    """Named by hand, it is said that nothing could be read of it; a script without an ending is read."""
    (tmp_path / "model").write_bytes(b"\0\1\2 torch")
    (tmp_path / "tool").write_text("#!/usr/bin/env python\nimport torch.distributed\n", encoding="utf-8")

    binary, script = (ddpdoctor("lint", "--no-cache", str(tmp_path / name)) for name in ("model", "tool"))

    assert binary.returncode == 2
    assert "cannot be read: it is no text" in binary.stderr
    assert script.returncode == 0, script.stderr
