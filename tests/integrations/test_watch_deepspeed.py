"""Trainings of DeepSpeed, as their users write them: run by night, with the package itself.

The first run builds an extension for the CPU, which takes minutes; TORCH_EXTENSIONS_DIR keeps it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frameworks import faults, hang_after, results_in
from helpers import LOAD, TORCHRUN, Run, Script

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600 * LOAD)]
pytest.importorskip("deepspeed", reason="needs deepspeed, of the extra 'frameworks'")

TRAINING = """
import argparse
import deepspeed, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--mode")
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--stage", type=int, default=1)
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
mode = args.mode
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
config = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": args.stage},
}
config["gradient_accumulation_steps"] = args.every
config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
adam = scheduler = None
if mode in {"optimizer", "schedule"}:
    del config["optimizer"]
    config["zero_allow_untested_optimizer"] = True
    adam = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(adam) if mode == "schedule" else None
if mode == "batch":
    config["train_batch_size"] = 7
if mode == "auto":
    config["train_batch_size"] = "auto"
data = TensorDataset(torch.arange(512.0).reshape(64, 8) / 512)
engine, optimizer, loader, _ = deepspeed.initialize(
    model=model,
    config=config,
    model_parameters=model.parameters(),
    training_data=data,
    optimizer=adam,
    lr_scheduler=scheduler,
)
accumulation = engine.gradient_accumulation_steps()
if mode == "loader":
    loader = DataLoader(data, batch_size=4, shuffle=True)
for epoch in range(2):
    if mode != "loader":
        loader.data_sampler.set_epoch(epoch)
    for step, (x,) in enumerate(loader):
        loss = engine(x).square().mean()
        if mode == "read":
            loss = loss + torch.nn.functional.linear(x, model[0].weight).mean()  # of ZeRO 3
        if mode == "divided":
            loss = loss / accumulation
        loss.backward() if mode == "plain" else engine.backward(loss)
        if mode == "clip":
            torch.nn.utils.clip_grad_norm_(engine.parameters(), 0.1)
        if mode == "optimizer":
            adam.step()
        elif mode == "boundary":
            if engine.is_gradient_accumulation_boundary():
                engine.step()
        elif mode != "seldom" or (step + 1) % accumulation == 0:
            engine.step()
        if mode == "schedule":
            scheduler.step()
        if mode == "again":
            optimizer.step()
    if mode == "folders":
        engine.save_checkpoint(f"saved/{dist.get_rank()}")
    elif mode == "placeholders" and dist.get_rank() == 0:
        torch.save(engine.module.state_dict(), "weights.pt")
    elif mode == "save":
        if dist.get_rank() == 0:
            engine.save_checkpoint("saved")  # here
    elif mode != "placeholders":
        engine.save_checkpoint("saved")
if mode == "load":
    state = torch.load("saved/" + open("saved/latest").read() + "/mp_rank_00_model_states.pt", weights_only=False)
    model.load_state_dict(state)
"""
SAVES = TRAINING[: TRAINING.index("  # here")].count("\n") + 1
Watched = Callable[..., list[Any]]
ENVIRON = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def built() -> None:
    """Build what DeepSpeed needs for collectives of the CPU, once."""
    code = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load()"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **ENVIRON}, check=True, capture_output=True)


@pytest.fixture
def watched(ddpdoctor: Run, script: Script, tmp_path: Path) -> Watched:
    """Return a function that runs the training in a mode, and gives what is found."""

    def run(mode: str, stage: int = 1, *launcher: str, every: int = 1, **environ: str) -> list[Any]:
        report = tmp_path / "report.json"
        torchrun = (str(TORCHRUN), "--standalone", "--nproc_per_node=2")
        command = (
            *(launcher or torchrun),
            script(TRAINING),
            "--mode",
            mode,
            "--stage",
            str(stage),
            "--every",
            str(every),
        )
        options = (*hang_after(8), "--on-finding", "raise", "--report", str(report))
        done = ddpdoctor("run", *options, "--", *command, cwd=tmp_path, **ENVIRON, **environ)
        return results_in(report, done)

    return run


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_healthy_one_gets_no_finding(watched: Watched, stage: int) -> None:
    """Without ZeRO and under each of its stages."""
    assert watched("healthy", stage) == []


@pytest.mark.usefixtures("built")
def test_its_own_launcher_is_watched(watched: Watched) -> None:
    """Which passes ``--local_rank``."""
    launcher = str(Path(sys.executable).with_name("deepspeed"))
    assert watched("healthy", 2, launcher, "--num_gpus", "2", "--master_port", "29617") == []


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("given", "slug", "told"),
    [
        (("optimizer", 1, 1), "optimizer-stepped-beside-engine", "+engine.step()"),
        (("schedule", 0, 1), "schedule-stepped-twice", "-scheduler.step()"),
        (("divided", 1, 4), "loss-divided-twice", "-loss / accumulation"),
        (("seldom", 1, 4), "engine-stepped-seldom", "+engine.step()"),
        (("boundary", 1, 4), "engine-stepped-seldom", "bring nearer"),
        (("clip", 2, 1), "engine-gradients-clipped", "gradient_clipping"),
        (("folders", 1, 1), "checkpoint-folders-differ", "one folder"),
        (("plain", 2, 4), "framework-backward-bypassed", "+engine.backward(loss)"),
        (("placeholders", 3, 1), "zero3-placeholder-weights", "save_16bit_model"),
    ],
)
def test_what_is_done_past_the_engine_is_named(
    watched: Watched, given: tuple[str, int, int], slug: str, told: str
) -> None:
    """Alone: nothing else is said of such a training."""
    mode, stage, every = given
    (found,) = faults(watched(mode, stage, every=every))
    assert found["slug"] == slug
    assert told in json.dumps(found["findings"]).replace('\\"', '"')


@pytest.mark.usefixtures("built")
def test_accumulation_as_the_engine_means_it_gets_no_finding(watched: Watched) -> None:
    """A step with each batch, and the loss as it is."""
    assert watched("healthy", 1, every=4) == []


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("mode", "slug", "told"),
    [
        ("save", "rank0-only-collective", f"train.py:{SAVES}"),
        ("loader", "no-distributed-sampler", "training_data=dataset"),
        ("batch", "deepspeed-batch-size-mismatch", "train_batch_size"),
        ("load", "nested-state-dict", 'ckpt["module"]'),
        ("auto", "deepspeed-auto-not-filled", "train_batch_size"),
        ("again", "optimizer-stepped-beside-engine", "-optimizer.step()"),
        ("read", "zero3-parameter-not-gathered", "GatheredParameters"),
    ],
)
def test_a_broken_one_is_named(watched: Watched, mode: str, slug: str, told: str) -> None:
    """With the line, and in the words of DeepSpeed."""
    found = watched(mode, 3 if mode == "read" else 1)
    assert slug in {each["slug"] for each in found}, found
    (ours,) = (each for each in found if each["slug"] == slug)
    assert told in json.dumps(ours["findings"], ensure_ascii=False).replace('\\"', '"')


def test_a_lock_that_was_left_behind_is_named(watched: Watched, tmp_path: Path) -> None:
    """As a build that was killed leaves it: ranks stand before they join."""
    lock = tmp_path / "extensions" / "deepspeed_shm_comm" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (1e9, 1e9))
    found = watched("healthy", 1, TORCH_EXTENSIONS_DIR=str(tmp_path / "extensions"))

    assert [each["slug"] for each in faults(found)] == ["build-lock-left"]
    assert re.search(rf"rm {lock}", json.dumps(found[0]["findings"]))
