"""Scripts that meet exceptions and bear them, or fail of what is nobody's business: no finding, no failure told."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
RANK = dist.get_rank()

def step(model, optimizer, inputs):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()

def training(**options):
    model = DDP(nn.Linear(4, 2), **options)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)
"""
BORNE = {
    "resumes from a checkpoint if there is one": """
        model, optimizer = training()
        try:
            model.load_state_dict(torch.load("no-such-file.pt"))
        except FileNotFoundError:
            pass
        for _ in range(4):
            step(model, optimizer, torch.randn(3, 4))
    """,
    "takes the prefix away where strict loading fails": """
        torch.save(DDP(nn.Linear(4, 2)).state_dict(), f"{RANK}.pt")
        net, state = nn.Linear(4, 2), torch.load(f"{RANK}.pt")
        try:
            net.load_state_dict(state)
        except RuntimeError:
            net.load_state_dict({key.removeprefix("module."): value for key, value in state.items()})
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            step(model, optimizer, torch.randn(3, 4))
    """,
    "skips a batch that does not fit, on all ranks": """
        model, optimizer = training()
        for size in (4, 4, 5, 4):
            try:
                step(model, optimizer, torch.randn(3, size))
            except RuntimeError:
                continue
    """,
    "asks for an attribute that the wrapper may not have": """
        model, optimizer = training()
        for _ in range(4):
            step(model, optimizer, torch.randn(3, 4))
            getattr(model, "encode", None)
            try:
                model.encode
            except AttributeError:
                model.module.weight
    """,
    "tries keywords that an older torch does not have": """
        try:
            model = DDP(nn.Linear(4, 2), no_such_keyword=True)
        except TypeError:
            model = DDP(nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            step(model, optimizer, torch.randn(3, 4))
    """,
    "ends by sys.exit": """
        model, optimizer = training()
        for _ in range(4):
            step(model, optimizer, torch.randn(3, 4))
        dist.barrier()
        sys.exit(0)
    """,
    "fails on all ranks of a bug of its own": """
        model, optimizer = training()
        for _ in range(4):
            step(model, optimizer, torch.randn(3, 4))
        {}["nothing"]
    """,
    "fails on one rank after all communication": """
        model, optimizer = training()
        for _ in range(4):
            step(model, optimizer, torch.randn(3, 4))
        dist.barrier()
        if RANK == 0:
            raise ValueError("the report cannot be written")
    """,
    "is asked to stop by Ctrl-C": """
        model, optimizer = training()
        for _ in range(4):
            step(model, optimizer, torch.randn(3, 4))
        dist.barrier()
        raise KeyboardInterrupt
    """,
}


@pytest.mark.parametrize("name", BORNE)
def test_nothing_is_found(name: str, tmp_path: Path, jobs: Jobs) -> None:
    """An exception that is handled, or that no check knows and that took no other rank down, is no finding."""
    script = tmp_path / "train.py"
    script.write_text(HEAD + dedent(BORNE[name]))

    assert not watched(script, CHECKS, jobs)
