"""Trainings of plain tensors are compared without an optimizer, and compute to the last bit what they do alone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS
from mutants import trainings

from ddpdoctor.jobs.outcome import Returned
from ddpdoctor.watch.pooled import Launch, watch_in_pool

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.jobs.pool import Jobs

TRAININGS = {each.name: each.text for each in trainings()}

DIFFERENTIATES = """
import torch
import torch.distributed as dist
from torch.func import grad, hessian, vmap

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
weights = {"a": torch.randn(6), "b": torch.zeros(6)}

def loss(weights, x):
    return (weights["a"] * x + weights["b"]).pow(2).sum()

for step in range(12):
    x = torch.randn(4, 6)
    each = vmap(grad(loss), (None, 0))(weights, x)
    twice = grad(lambda w: sum(g.pow(2).sum() for g in grad(loss)(w, x[0]).values()))(weights)
    curved = hessian(loss)(weights, x[0])["a"]["a"].sum()
    leaf = weights["a"].clone().requires_grad_()
    (first,) = torch.autograd.grad((leaf ** 3).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), leaf)
    nothing = torch.autograd.grad((leaf * 2).sum(), [leaf, weights["b"].requires_grad_()], allow_unused=True)
    total = each["a"].sum(0) + twice["a"] + second + curved + nothing[0]
    dist.all_reduce(total)
    weights = {"a": weights["a"] - 0.01 * total, "b": weights["b"].detach() - 0.01 * twice["b"]}
dist.destroy_process_group()
"""


@pytest.mark.parametrize("name", ["functional", "pytree"])
def test_the_result_is_the_same_to_the_last_bit(name: str, jobs: Jobs, tmp_path: Path) -> None:
    """All ranks end with the weights that they end with unwatched."""
    script = tmp_path / "train.py"
    script.write_text(TRAININGS[name], encoding="utf-8")
    alone = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        str(script), str(tmp_path / "alone"),
    ]  # fmt: skip
    subprocess.run(alone, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    launch = Launch(script=script, argv=(str(tmp_path / "watched"),), deadline=60.0, hang_after=100.0)
    outcomes, _, _ = watch_in_pool(launch, CHECKS, jobs, lambda _: False)

    assert all(isinstance(each, Returned) for each in outcomes)
    for rank in range(2):
        assert (tmp_path / f"watched.{rank}").read_bytes() == (tmp_path / f"alone.{rank}").read_bytes()


def test_gradients_of_all_kinds_pass_through(jobs: Jobs, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Gradients of single samples, of gradients, and of what is unused: nothing fails, and nothing is said."""
    script = tmp_path / "train.py"
    script.write_text(DIFFERENTIATES, encoding="utf-8")

    launch = Launch(script=script, deadline=60.0, hang_after=100.0)
    outcomes, found, _ = watch_in_pool(launch, CHECKS, jobs, lambda _: False)

    assert all(isinstance(each, Returned) for each in outcomes)
    assert [each.check.slug for each in found if each.check.area != "performance"] == []
    assert "the watch failed" not in capfd.readouterr().err
