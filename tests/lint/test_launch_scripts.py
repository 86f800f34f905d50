"""What is read of launch scripts: as bash reads them, and nothing where that is not certain."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import CHECKS, Run
from hypothesis import given, settings, strategies as st

from ddpdoctor.facets import Instrument
from ddpdoctor.lint import LIKELY
from ddpdoctor.lint.files import find
from ddpdoctor.lint.run import Wanted, lint_text
from ddpdoctor.source.across.project import Project
from ddpdoctor.source.launching.launch_script import LaunchScript
from ddpdoctor.source.launching.script_variables import DOCKERFILE, YAML
from ddpdoctor.source.launching.shell import read_shell
from ddpdoctor.source.launching.shell_words import ShellError

RULES = tuple(check for check in CHECKS if check.of(Instrument.LINT))
ALL = Wanted(RULES, confidence=LIKELY)
WORDS = [
    "plain",
    "'single $X \"q\"'",
    "\"double \\$X 'q'\"",
    "a\\ b",
    "$'x'",
    "mixed\"in one\"'word'",
    "--name=value",
    "a\\\n b",
    "2>&1",
    "> /dev/null",
    "'#no' # a comment",
    '""',
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("words", [WORDS[:4], WORDS[4:8], WORDS[8:12], WORDS[9::-1]], ids=["1", "2", "3", "all"])
def test_words_are_what_bash_hands_to_a_program(words: list[str], tmp_path: Path) -> None:
    """Quotes, escapes, redirections, comments and lines that go on."""
    text = "show " + " ".join(words)
    bash = "show() { printf '%s\\0' \"$@\" >&3; }\n" + text
    told = tmp_path / "words"
    subprocess.run(["bash", "-c", f"exec 3>{told}; {bash}"], check=True, capture_output=True)

    (command,) = read_shell(text).commands
    assert [each.text for each in command.words[1:]] == told.read_text().split("\0")[:-1]


SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2   # two
#SBATCH -n 8
ARGS=(a b
  c)
case "$1" in
  small) N=2 ;;
  *) N=4 ;;
esac
function first { torchrun in_function.py; }
second() { torchrun in_function.py; }
cat > job.sh <<'EOT'
torchrun in_document.py ' (
EOT
for i in 1 2; do torchrun in_loop.py & done
if [ -z "$X" ]; then torchrun in_branch.py; fi
test -f x && torchrun in_list.py
echo "$(torchrun substituted.py)"
M=4
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=$M --nnodes $N train.py --epochs 3
"""


def test_a_script_is_divided_into_commands_that_each_run_comes_to_and_others() -> None:
    """Functions, loops, branches and lists are no certain ways; documents and substitutions are others' text."""
    launch = LaunchScript("job.sh", SCRIPT)

    assert [(each.script and each.script.text, each.command.is_certain) for each in launch.launches] == [
        ("in_function.py", False),
        ("in_function.py", False),
        ("in_loop.py", False),
        ("in_branch.py", False),
        ("in_list.py", False),
        ("train.py", True),
    ]
    last = launch.launches[-1]
    assert launch.number(last.options["nproc-per-node"]) == 4
    assert launch.number(last.options["nnodes"]) is None, "it is set twice"
    assert [each.text for each in last.arguments] == ["--epochs", "3"]
    assert (launch.count("nodes"), launch.count("ntasks")) == (2, 8)


@pytest.mark.parametrize("text", ["echo 'open", "if true; then x", "a )", 'x "$(y"', "case x in"])
def test_a_script_that_cannot_be_followed_says_nothing(text: str) -> None:
    """It is no fault: shells accept more than is read here."""
    with pytest.raises(ShellError):
        read_shell(text)
    done = lint_text("run.sh", f"torchrun --standalone --nnodes=2 a.py\n{text}".encode(), ALL)
    assert (done.found, done.faults, done.crashes) == ((), (), ())


def test_a_dockerfile_has_commands_and_variables() -> None:
    """Both forms of CMD, instructions of several lines, both forms of ENV."""
    text = (
        'FROM x\nENV A=1 \\\n    B=2\nENV C 3\nRUN pip install x && \\\n    torchrun a.py\nCMD ["torchrun", "b.py"]\n'
    )
    launch = LaunchScript("Dockerfile", text, DOCKERFILE)

    assert [(each.name, each.line) for each in launch.settings] == [("A", 2), ("B", 3), ("C", 4)]
    assert [(each.script.text, each.line) for each in launch.launches if each.script] == [("a.py", 6), ("b.py", 7)]
    assert all(text[each.begin :].startswith(each.name) for each in launch.settings)


def test_yaml_is_read_with_the_places_of_its_keys() -> None:
    """Keys below keys, lists, documents; a block of text is a value."""
    text = "a:\n  b: 1\n  c:\n  - name: x\n    d: 2 # no\n  e: |\n    f: 3\n---\ng: 'h'\n"
    text += "env:\n- name: NCCL_X\n  value: 1\n- {name: NCCL_Y, value: 2}\n"
    launch = LaunchScript("job.yaml", text, YAML)
    first, second = launch.documents

    assert first.written() == "\na: \nb: 1\nc: [\nname: x\nd: 2]\ne:     f: 3"
    assert second.places == {"g": (9, text.index("g:")), "env": (10, text.index("env:"))}
    assert [(each.name, each.line) for each in launch.settings] == [("NCCL_X", 11), ("NCCL_Y", 13)]
    assert all(text[each.begin :].startswith(each.name) for each in launch.settings)


def test_a_folder_named_dist_is_looked_through_where_python_files_lie_in_it(tmp_path: Path) -> None:
    """What was built is left out; the distributed part of a project, which many keep in `dist`, is not."""
    for name in ("dist/train.py", "built/dist/package-1.0/train.py", "built/build/lib/train.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("import torch\n")
    assert find((str(tmp_path),), (), tmp_path) == [tmp_path / "dist/train.py"]


def test_folders_are_looked_through_for_files_that_start_trainings(tmp_path: Path) -> None:
    """By their names; a file of another name is looked at where it is named."""
    for name in (
        "a.py",
        "b.sh",
        "c.sbatch",
        "Dockerfile",
        "gpu.Dockerfile",
        "Dockerfile.dev",
        "d.yml",
        "e.txt",
        "f.md",
    ):
        (tmp_path / name).write_text("")

    names = [each.name for each in find((str(tmp_path),), (), tmp_path)]
    assert names == ["Dockerfile", "Dockerfile.dev", "a.py", "b.sh", "c.sbatch", "d.yml", "gpu.Dockerfile"]


def test_a_misspelt_name_is_mended_in_a_launch_script_and_nothing_else_changes(ddpdoctor: Run, tmp_path: Path) -> None:
    """Its comment keeps a line quiet, as in Python; a second --fix changes nothing."""
    text = "# é\nexport NCCL_IB_DISABLED=1 NCCL_DEBUG=INFO\n"
    text += "export CUDA_VISIBLE_DEVICE=0 # ddpdoctor: ignore[DDP101] ours\n"
    path = tmp_path / "run.sh"
    path.write_text(text)
    assert ddpdoctor("lint", cwd=tmp_path).returncode == 1

    for _ in range(2):
        assert ddpdoctor("lint", "--fix", cwd=tmp_path).returncode == 0
        assert path.read_text() == text.replace("DISABLED", "DISABLE")


PIECES = ["torchrun ", "--nnodes=2 ", "$X ", *"\"'()\n\\`}&;é", "<<E", "#SBATCH -N 2\n", "${", "if "]


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(st.sampled_from(PIECES), max_size=20), st.sampled_from(["run.sh", "Dockerfile", "job.yaml"]))
def test_nothing_that_looks_like_a_launch_script_crashes(pieces: list[str], name: str) -> None:
    """Quotes that nothing closes, documents that do not end, keys of nothing."""
    text = "".join(pieces)
    done = lint_text(name, (f"RUN {text}" if name == "Dockerfile" else f"torchrun\n{text}").encode(), ALL)

    assert not done.crashes


@pytest.mark.parametrize("marker", ["", "pyproject.toml"])
def test_a_file_above_the_project_is_none_of_its_scripts(tmp_path: Path, marker: str) -> None:
    """A script is looked for from the launch file's folder up to the root of its project, and no higher."""
    (tmp_path / "train.py").write_text("stray", encoding="utf-8")
    folder = tmp_path / "project" / "scripts"
    folder.mkdir(parents=True)
    if marker:
        (folder.parent / marker).touch()
    launch = folder / "run.sh"

    assert Project(others=(str(launch),)).beside(str(launch), "train.py") is None
    (folder.parent / "train.py").write_text("own", encoding="utf-8")
    others = (str(launch), str(folder.parent / "train.py"))
    assert Project(others=others).beside(str(launch), "train.py") == "own"
