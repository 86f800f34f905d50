"""Blocks that one rank runs before the others: what all ranks meet in has no place there."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, assert_nothing, assert_only

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.pool import Jobs

HEAD = """
import contextlib
import sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")

class State:
    @contextlib.contextmanager
    def main_process_first(self):
        if dist.get_rank() > 0:
            dist.barrier()
        yield
        if dist.get_rank() == 0:
            dist.barrier()

@contextlib.contextmanager
def zero_first(rank):
    if rank not in (-1, 0):
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
"""
END = """
Path(__file__ + f".{dist.get_rank()}").touch()
dist.destroy_process_group()
"""
WITHIN = {
    "a block by the name that Accelerate has for it": """
        with State().main_process_first():
            net = nn.Linear(8, 1)
            model = DDP(net)  # guilty
        train(model)
        """,
    "a block of the script's own": """
        with zero_first(dist.get_rank()):
            rows = torch.ones(4)
            dist.all_reduce(rows)  # guilty
        train(DDP(nn.Linear(8, 1)))
        """,
}
BEHIND = """
with State().main_process_first():
    net = nn.Linear(8, 1)
with zero_first(dist.get_rank()):
    rows = torch.ones(4)
dist.all_reduce(rows)
train(DDP(net))
"""


@pytest.mark.parametrize("script", [pytest.param(each, id=name) for name, each in WITHIN.items()])
def test_what_all_meet_in_is_named_within_a_turn(
    script: str, tmp_path: Path, jobs: Jobs, checks: dict[str, Check]
) -> None:
    """The rank in the block waits for those who enter it when that rank is out."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + END)

    found = watched(path, CHECKS, jobs, until=checks["rank0-only-collective"])

    assert_only(found, "rank0-only-collective", "enters the block when rank 0 is out of it", path)


def test_nothing_is_said_where_all_meet_behind_the_turns(tmp_path: Path, jobs: Jobs) -> None:
    """One rank after the other, and then all."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + BEHIND + END)

    assert_nothing(watched(path, CHECKS, jobs), path)
