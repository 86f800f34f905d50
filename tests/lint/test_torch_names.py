"""A slip in a name of torch is told apart from a name that another version of torch has."""

from __future__ import annotations

import ast
import importlib
import re

import pytest
from helpers import ROOT

from ddpdoctor.check import closest
from ddpdoctor.checks.model.wrapping.names._torch_names import OFFERED
from ddpdoctor.source.text.names import canonical

IN_ALL_VERSIONS = {"Reducer", "reduce_op", "DistributedDataParallelCPU"}
NAME = re.compile(r"(?:^|(?<= ))(?:torch|accelerate)(?:\.\w+)+(?= |$)")
SAID = "torch.nn.DataParallel"
"""What a user is told, who had a slip in it: the name that the documentation has."""


@pytest.mark.parametrize("module", OFFERED)
def test_the_installed_torch_has_all_names(module: str) -> None:
    """What is offered is there."""
    known = importlib.import_module(module)

    assert [name for name in OFFERED[module] if not hasattr(known, name)] == []


@pytest.mark.parametrize("module", OFFERED)
def test_no_name_of_the_installed_torch_is_a_slip_of_another(module: str) -> None:
    """So that on an older torch, which does not have it yet, nothing wrong is offered."""
    public = {name for name in vars(importlib.import_module(module)) if not name.startswith("_")}
    taken = {name: closest(name, OFFERED[module]) for name in public - set(OFFERED[module])}

    assert {name for name, right in taken.items() if right} <= IN_ALL_VERSIONS


@pytest.mark.parametrize(
    ("module", "wrong", "right"),
    [
        ("torch.nn", "SyncBatchnorm", "SyncBatchNorm"),
        ("torch.distributed", "Reduce_Op", "ReduceOp"),
        ("torch.distributed", "allreduce", "all_reduce"),
        ("torch.nn.parallel", "DistributedDataparallel", "DistributedDataParallel"),
        ("torch.nn", "RMSNorm", ""),
        ("torch.distributed", "split_group", ""),
    ],
)
def test_a_slip_is_known(module: str, wrong: str, right: str) -> None:
    """By a letter, the case, or an underscore; a newer name is none."""
    assert closest(wrong, OFFERED[module]) == right


def test_names_are_asked_for_as_they_are_resolved() -> None:
    """A constant with another address of the same thing would match no name of a script."""
    sources = [*(ROOT / "ddpdoctor/source").rglob("*.py"), *(ROOT / "checks").rglob("*.py")]
    texts = [
        node.value
        for path in sources
        if path.name != "names.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    names = {name for text in texts if not text.startswith("from ") for name in NAME.findall(text)}

    assert "torch.nn.parallel.DataParallel" in names
    assert {name for name in names if canonical(name) != name} == {SAID}
