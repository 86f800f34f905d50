"""What is read of files of other kinds than shell scripts: the commands in them, with their lines and places."""

from __future__ import annotations

import json

import pytest
from helpers import CHECKS

from ddpdoctor.facets import Instrument
from ddpdoctor.lint import LIKELY
from ddpdoctor.lint.run import Wanted, lint_text
from ddpdoctor.source.launching.launch_script import LaunchScript
from ddpdoctor.source.launching.script_variables import EDITOR, MAKEFILE, SHELL, YAML
from ddpdoctor.source.launching.tasks import tasks_of
from ddpdoctor.source.launching.yaml.tree import documents
from ddpdoctor.source.module_names import lacks

ALL = Wanted(tuple(check for check in CHECKS if check.of(Instrument.LINT)), confidence=LIKELY)
POD = """\
spec:
  containers:
  - name: one
    env:
    - name: HEAD
      value: node1
    command: [bash, -c, "torchrun --master_addr=$HEAD --nnodes=2 a.py"]
  - name: two
    command:
    - torchrun
    args: ["--nproc_per_node", '2',
           b.py]
  - name: three
    command: >
      torchrun
      --nproc_per_node=3 c.py
steps:
- run: |
    pip install -e .
    torchrun d.py
"""


def said(launch: LaunchScript) -> list[tuple[str, int, dict[str, str | None]]]:
    """Return the script, the line and the options of each launcher."""
    return [
        (
            each.script.text if each.script else "",
            each.line,
            {k: w.text if w else None for k, w in each.options.items()},
        )
        for each in launch.launches
    ]


def test_yaml_has_the_commands_of_its_containers_and_steps() -> None:
    """Lists in both styles, a shell's script, folded and literal text; a container's variables are put in."""
    assert sorted(said(LaunchScript("job.yaml", POD, YAML))) == [
        ("a.py", 7, {"master-addr": "node1", "nnodes": "2"}),
        ("b.py", 10, {"nproc-per-node": "2"}),
        ("c.py", 15, {"nproc-per-node": "3"}),
        ("d.py", 20, {}),
    ]


@pytest.mark.parametrize(
    "text", ["a: [b, {c", "{{ x }}:\n  - y", "a:\n b\n  - c: d", "- - - x", "? a\n: b", "a: &x\n  <<: *y", "\t- a"]
)
def test_yaml_that_is_not_understood_ends_in_an_open_node_or_none(text: str) -> None:
    """Templates and rare styles are no fault."""
    assert isinstance(documents(text), list)


SERVICES = """\
x-base: &base
  image: torch
  environment: &env
    NCCL_DEBGU: INFO
  deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}
services:
  bare:
    <<: *base
    command: torchrun --nproc_per_node=2 a.py
  roomy:
    <<: *base
    shm_size: 8gb
    command: &same torchrun --nproc_per_node=2 a.py
  third:
    environment: *env
    command: *same
"""


def test_what_anchors_stand_for_is_put_in() -> None:
    """A merged mapping gives what the service does not say itself; a variable is told where it stands, once."""
    found = [each.finding for each in lint_text("compose.yaml", SERVICES.encode(), ALL).found]
    launch = LaunchScript("compose.yaml", SERVICES, YAML)

    assert [(each.place.line, each.message.partition(":")[0]) for each in found] == [
        (4, "nobody reads NCCL_DEBGU"),
        (7, "the service bare starts several ranks on GPUs with the 64 MiB of /dev/shm that a container has unasked"),
    ]
    assert [each.command.assigned[0][0] for each in launch.launches] == ["NCCL_DEBGU"] * 3


def test_lines_of_a_template_are_passed_over_and_leave_their_mapping_open() -> None:
    """What stands between them is read, and nothing is concluded from what is not there."""
    text = "spec:\n{{- if .Values.on }}\n  hostNetwork: true\n{{- end }}\n  env:\n  - name: NCCL_DEBGU\n    value: a\n"
    launch = LaunchScript("pod.yaml", text, YAML)

    assert [(each.name, each.line) for each in launch.settings] == [("NCCL_DEBGU", 6)]
    assert any(each.is_open for each in launch.documents[0].walk())


def test_a_recipe_is_read_as_make_hands_it_over_with_the_places_of_the_file() -> None:
    """Two dollars are one, a variable of make is one of the shell, and a place is that in the Makefile."""
    text = "N ?= 2\nrun:\n\t@echo $$HOME && NCCL_DEBUGG=INFO torchrun \\\n\t  --nproc_per_node=$(N) train.py\n"
    launch = LaunchScript("Makefile", text, MAKEFILE)

    (each,) = launch.launches
    assert (launch.number(each.options["nproc-per-node"]), each.line) == (2, 3)
    (found,) = [one.finding for one in lint_text("Makefile", text.encode(), ALL).found]
    assert text[: text.index("NCCL_DEBUGG")].count("\n") + 1 == found.place.line
    assert found.fix.diff is not None
    assert "+\t@echo $$HOME && NCCL_DEBUG=INFO" in found.fix.diff


def test_an_editors_configurations_are_commands() -> None:
    """Comments and last commas are allowed there; a program that is no launcher says nothing."""
    text = '{"configurations": [\n// one\n{"name": "a", "module": "torch.distributed.run",'
    text += ' "args": ["--nnodes=1", "t.py"],},\n'
    text += '{"name": "b", "program": "t.py"}]}'

    assert said(LaunchScript("launch.json", text, EDITOR)) == [("t.py", 3, {"nnodes": "1"})]
    assert LaunchScript("launch.json", "{", EDITOR).launches == ()


def test_a_notebooks_commands_have_the_places_of_its_cells() -> None:
    """Lines with an exclamation mark, and cells of bash."""
    cells = [
        "import torch\n!mpirun -np 2 torchrun --nproc_per_node=2 a.py",
        "%%bash\nmpirun -np 2 torchrun --nproc_per_node=2 a.py",
    ]
    held = {"cells": [{"cell_type": "code", "source": [each]} for each in cells]}
    found = [each.finding for each in lint_text("a.ipynb", json.dumps(held).encode(), ALL).found]

    assert [each.place.file for each in found] == ["a.ipynb:cell 1", "a.ipynb:cell 2"]
    assert all("mpirun -np 2" in each.evidence[0].seen for each in found)


def test_a_script_that_is_handed_to_a_shell_is_read_with_what_starts_it() -> None:
    """In single quotes nothing is expanded before; an array stands for its words."""
    text = '#SBATCH --nodes=2\nCMD=(srun -n 2 torchrun\n  --nnodes=2 a.py)\n"${CMD[@]}"\n'
    text += "srun --ntasks-per-node=3 bash -c 'cd x; torchrun --nnodes=2 b.py'\n"
    launch = LaunchScript("job.sh", text, SHELL)
    first, second = launch.launches
    one, other = tasks_of(launch, first), tasks_of(launch, second)

    assert one is not None and one.total == 2  # noqa: PT018 - mypy
    assert other is not None and (other.total, other.each) == (6, 3)  # noqa: PT018 - mypy
    assert second.handed is not None and not second.handed.is_open  # noqa: PT018 - mypy


def test_what_variables_of_options_hold_is_joined_with_the_command() -> None:
    """Those that others are made of, and that are added to; not where a branch or the environment has a say."""
    text = 'A="--nnodes=2"\nA="$A --node_rank=0"\nA+=" --nproc_per_node=4"\nRUN="torchrun $A"\n$RUN a.py\n'
    text += (
        'B="$B --nnodes=3"\ntorchrun $B b.py\nC="--nnodes=4"\nif [ $1 ]; then C="--nnodes=5"; fi\ntorchrun $C c.py\n'
    )

    assert said(LaunchScript("run.sh", text, SHELL)) == [
        ("a.py", 5, {"nnodes": "2", "node-rank": "0", "nproc-per-node": "4"}),
        ("", 7, {}),
        ("", 10, {}),
    ]


def test_a_batch_script_in_a_here_document_has_the_lines_of_the_file() -> None:
    """It is read as a script of its own."""
    text = (
        "cat <<EOT > a.sh\n#!/bin/bash\n#SBATCH --ntasks=4\nsrun torchrun --nproc_per_node=4 t.py\nEOT\nsbatch a.sh\n"
    )
    (found,) = [each.finding for each in lint_text("s.sh", text.encode(), ALL).found]

    assert (found.place.line, found.message) == (
        4,
        "srun starts 4 torchruns for a training of 1 node: one for each task",
    )


def test_the_line_ends_of_windows_are_told_where_a_shell_is_named() -> None:
    """Elsewhere the file can be another program's."""
    text = "#!/bin/bash\ntorchrun --standalone t.py\n"

    assert [each.check.slug for each in lint_text("a.sh", text.replace("\n", "\r\n").encode(), ALL).found] == [
        "command-cut-off"
    ]
    assert lint_text("a.sh", text.encode(), ALL).found == ()


@pytest.mark.parametrize(
    ("text", "is_lacking"),
    [
        ("def a(): pass", True),
        ("def f():\n  b = 1", True),
        ("class A:\n  def b(self): pass", True),
        ("if x:\n  b = 1", False),
        ("from x import *", False),
        ("def __getattr__(n): ...", False),
        ("globals()['b'] = 1", False),
        ("exec('b = 1')", False),
        ("try:\n  import b\nexcept E:\n  pass", False),
        ("def f():\n  global b\n  b = 1", False),
        ("with o as b: pass", False),
        ("(b := 1)", False),
        ("a, (*b, c) = x", False),
        ("import sys\nsys.modules[__name__].b = 1", False),
        ("def (", False),
    ],
)
def test_a_module_lacks_a_name_where_no_way_of_it_binds_one(text: str, *, is_lacking: bool) -> None:
    """What is not certain is left to the rank that imports it."""
    assert lacks(text, "b") is is_lacking
