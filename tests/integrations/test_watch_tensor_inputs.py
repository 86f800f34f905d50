"""What the ranks of one tensor-parallel group give their layers: another value on each of them is a fault."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, assert_only

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(8, 16), nn.Linear(16, 8), nn.Dropout(rate)

    def forward(self, x):
        hidden = self.up(x)  # GUILTY
        return x + self.drop(self.down(hidden.relu()))

def split(rate):
    model = nn.Sequential(Block(rate), Block(rate))
    plan = {f"{at}.up": ColwiseParallel() for at in (0, 1)} | {f"{at}.down": RowwiseParallel() for at in (0, 1)}
    return parallelize_module(model, mesh, plan)

def fit(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

def alike(steps=6):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(4, 8, generator=generator)
"""
END = "\ndist.destroy_process_group()\n"
FAULTS = {
    "dropout of each rank's own": (
        "each computes with random numbers of its own",
        """
        model = split(0.5)
        torch.manual_seed(rank)
        fit(model, alike())
        """,
    ),
    "noise of each rank's own on the batches that all read": (
        "batches, or random numbers, of each rank's own",
        """
        model = split(0.0)
        data = TensorDataset(torch.arange(192.0).reshape(24, 8) / 192)
        torch.manual_seed(rank)
        fit(model, (x + torch.randn(x.shape) for _ in range(2) for x, in DataLoader(data, batch_size=4)))
        """,
    ),
    "batches of each rank's own": (
        "batches, or random numbers, of each rank's own",
        """
        model = split(0.0)
        torch.manual_seed(rank)
        fit(model, (torch.randn(4, 8) for _ in range(6)))
        """,
    ),
}
HEALTHY = {
    "the same noise on all ranks": """
        model = split(0.5)
        fit(model, alike())
        """,
    "another batch in each step, and an evaluation of each rank's own batch between": """
        model = split(0.0)
        def batches():
            for number, batch in enumerate(alike()):
                if number == 1:
                    model.eval()
                    with torch.no_grad():
                        model(torch.randn(4, 8))
                    model.train()
                yield batch
        fit(model, batches())
        """,
}


@pytest.mark.parametrize("fault", [pytest.param(each, id=name) for name, each in FAULTS.items()])
def test_other_values_on_each_rank_are_found(fault: tuple[str, str], tmp_path: Path, jobs: Jobs) -> None:
    """At the line that gives them to a layer which is split, with what the evidence leaves open."""
    words, script = fault
    path = tmp_path / "train.py"
    path.write_text(HEAD.replace("GUILTY", "guilty") + dedent(script) + END)

    assert_only(watched(path, CHECKS, jobs), "batches-differ-in-tensor-parallel", words, path)


@pytest.mark.parametrize("script", [pytest.param(each, id=name) for name, each in HEALTHY.items()])
def test_nothing_is_said_where_all_ranks_give_the_same(script: str, tmp_path: Path, jobs: Jobs) -> None:
    """Dropout that all draw alike; what is evaluated is not looked at."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + END)

    assert [each.finding.message for each in watched(path, CHECKS, jobs)] == []
