"""A slip in a name of torch is told apart from a name that another version of torch has."""

from __future__ import annotations

import importlib

import pytest

from ddpdoctor.check import closest
from ddpdoctor.checks.model.wrapping._torch_names import OFFERED

IN_ALL_VERSIONS = {"Reducer", "reduce_op", "DistributedDataParallelCPU"}


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
