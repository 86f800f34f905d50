"""Trainings of Ray Train, as their users write them: run by night, with the package itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frameworks import faults, hang_after, results_in
from helpers import LOAD, PATIENCE, Script

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600 * LOAD)]
pytest.importorskip("ray.train", reason="needs ray[train], of the extra 'frameworks'")

TRAINING = """
import sys
import ray, ray.train, ray.train.torch
import torch
import torch.distributed as dist
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from torch.utils.data import DataLoader, TensorDataset

def train_func(config):
    mode = config["mode"]
    if mode == "group":
        dist.init_process_group("gloo")
    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 2))
    loader = DataLoader(TensorDataset(torch.arange(512.0).reshape(64, 8) / 512), batch_size=4, shuffle=True)
    if mode not in ("loader", "watched"):
        loader = ray.train.torch.prepare_data_loader(loader)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rank = ray.train.get_context().get_world_rank()
    for epoch in range(3):
        if mode in ("healthy", "score"):
            loader.sampler.set_epoch(epoch)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        if mode == "barrier" and rank == 0:
            dist.barrier()
        if mode == "score":
            ray.train.report({"epoch": epoch, "score": 0.5 + rank / 10})
        elif mode != "report":
            ray.train.report({"epoch": epoch})
        elif rank == 0:
            ray.train.report({"epoch": epoch})

if __name__ == "__main__":
    train = train_func
    if sys.argv[1] == "watched":
        from ddpdoctor.callbacks.ray import watched
        train = watched(train_func)
    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        train, train_loop_config={"mode": sys.argv[1]}, scaling_config=ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            storage_path=sys.argv[2],
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score"),
        ),
    )
    trainer.fit()
"""
Watched = Callable[..., list[Any]]
ENVIRON = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def watched(script: Script, tmp_path: Path) -> Watched:
    """Return a function that runs the training in a mode, and gives what is found."""

    def run(mode: str) -> list[Any]:
        report = tmp_path / "report.json"
        options = (*hang_after(10), "--on-finding", "raise", "--report", str(report))
        command = (sys.executable, script(TRAINING), mode, str(tmp_path))
        done = subprocess.run(
            [sys.executable, "-m", "ddpdoctor", "run", *options, "--", *command],
            env={**os.environ, **ENVIRON}, capture_output=True, text=True, check=False, timeout=4 * PATIENCE,
        )  # fmt: skip
        return results_in(report, done)

    return run


def test_a_healthy_one_gets_no_finding(watched: Watched) -> None:
    """With model and loader prepared, and a report of all workers."""
    assert watched("healthy") == []


@pytest.mark.parametrize(
    ("mode", "slug", "told"),
    [
        ("report", "rank0-only-collective", "ray.train.report"),
        ("barrier", "rank0-only-collective", "barrier"),
        ("loader", "no-distributed-sampler", "ray.train.torch.prepare_data_loader"),
        ("group", "process-group-initialized-twice", "torch_config"),
        ("score", "monitored-metric-of-one-rank", "ray.train.report"),
    ],
)
def test_a_broken_one_is_named(watched: Watched, mode: str, slug: str, told: str) -> None:
    """Though it trains in a thread of its own; in the words of Ray Train."""
    (found,) = faults(watched(mode))
    assert found["slug"] == slug
    assert told in json.dumps(found["findings"])


def test_a_training_function_is_watched(script: Script, tmp_path: Path) -> None:
    """Without ``ddpdoctor run``, as on a cluster that runs already; what is found is printed where Ray prints."""
    done = subprocess.run(
        [sys.executable, script(TRAINING), "watched", str(tmp_path)],
        env={**os.environ, **ENVIRON}, capture_output=True, text=True, check=False, timeout=4 * PATIENCE,
    )  # fmt: skip
    assert "DDP601 no-distributed-sampler" in done.stdout + done.stderr
