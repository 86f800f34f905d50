from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers import PATIENCE, Command, Port, Run, Script

OF_TORCH = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from contextlib import nullcontext
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

def net():
    torch.manual_seed(dist.get_rank())
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 2))

def loop(model, optimizer, steps=6):
    for _ in range(steps):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        if isinstance(model, FullyShardedDataParallel):
            model.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model, loss

def fsdp1():
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    return loop(model, torch.optim.AdamW(model.parameters(), lr=0.1))

def fsdp2():
    from torch.distributed.fsdp import fully_shard  # since torch 2.6

    model = fully_shard(net(), mesh=init_device_mesh("cpu", (2,)))
    return loop(model, torch.optim.AdamW(model.parameters(), lr=0.1))

def zero():
    model = DDP(net())
    return loop(model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01))

def join():
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Linear(8, 2))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    with Join([model, optimizer]):
        return loop(model, optimizer, 5 + dist.get_rank())

def accumulated():
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(12):
        last = number % 4 == 3
        with nullcontext() if last else model.no_sync():
            loss = model(torch.randn(4, 8)).square().mean() / 4
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return model, loss

def adversarial():
    torch.manual_seed(dist.get_rank())
    generator, critic = DDP(nn.Linear(4, 8)), DDP(nn.Linear(8, 1))
    first = torch.optim.Adam(generator.parameters(), lr=0.01)
    second = torch.optim.Adam(critic.parameters(), lr=0.01)
    for _ in range(6):
        fake = generator(torch.randn(4, 4))
        second.zero_grad()
        (critic(fake.detach()).mean() - critic(torch.randn(4, 8)).mean()).backward()
        second.step()
        first.zero_grad()
        loss = -critic(fake).mean()
        loss.backward()
        first.step()
    return generator, loss

def worker(rank, train):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{os.environ['PORT']}", rank=rank, world_size=2)
    model, loss = train()
    bits = [getattr(each, "_local_tensor", each).detach().double().sum().item().hex() for each in model.parameters()]
    sys.stdout.write(f"rank {rank} {train.__name__} loss {loss.item().hex()} parameters {bits}\\n")
    sys.stdout.flush()

if __name__ == "__main__":
    mp.start_processes(worker, (globals()[sys.argv[1]],), nprocs=2, start_method="fork")
"""
TRAININGS = ("fsdp1", "fsdp2", "zero", "join", "accumulated", "adversarial")
COMPILED = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def worker(rank):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{os.environ['PORT']}", rank=rank, world_size=2)
    for number in range(2):
        torch.manual_seed(rank)
        inner = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 2))
        model = torch.compile(DDP(inner), backend="eager") if number else DDP(torch.compile(inner, backend="eager"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        bits = [each.detach().double().sum().item().hex() for each in model.parameters()]
        sys.stdout.write(f"rank {rank} loss {loss.item().hex()} parameters {bits}\\n")
        sys.stdout.flush()
    del model, optimizer
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(worker, nprocs=2, start_method="fork")
"""
LIGHTNING = """
import sys
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel

if __name__ == "__main__":
    seed_everything(5)
    model = BoringModel()
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, limit_train_batches=20, limit_val_batches=4,
        enable_progress_bar=False, logger=False, enable_checkpointing=True,
    )
    trainer.fit(model, datamodule=BoringDataModule())
    bits = [parameter.detach().double().sum().item().hex() for parameter in model.parameters()]
    sys.stdout.write(f"rank {trainer.global_rank} {bits}\\n")
"""
ACCELERATE = """
import sys
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    set_seed(3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4, shuffle=True)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for (inputs,) in loader:
            with accelerator.accumulate(model):
                loss = model(inputs).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    bits = [parameter.detach().double().sum().item().hex() for parameter in model.parameters()]
    sys.stdout.write(f"rank {accelerator.process_index} loss {loss.item().hex()} {bits}\\n")
    del loss
    model, optimizer, loader = accelerator.free_memory(model, optimizer, loader)  # before the group: see DDP742
    accelerator.end_training()
"""


def lines(output: str) -> list[str]:
    """Return the lines about the ranks: their order is that of the ranks' luck."""
    return sorted(re.findall(r"rank \d.*", output))


@pytest.fixture
def compare(ddpdoctor: Run, script: Script, tmp_path: Path, free_port: Port) -> Callable[..., None]:
    """Return what runs a script alone and watched: same status, same losses, same parameters, and not a word."""

    def run(launcher: Sequence[str], text: str, *arguments: str) -> None:
        folders = tmp_path / "alone", tmp_path / "watched"
        for folder in folders:
            folder.mkdir()
        report, command = tmp_path / "report.json", (*launcher, script(text), *arguments)
        environ = {**os.environ, "PORT": free_port()}
        expected = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folders[0], env=environ, timeout=PATIENCE
        )
        watched = ddpdoctor("run", "-q", "--report", str(report), "--", *command, cwd=folders[1])

        assert (watched.returncode, expected.returncode) == (0, 0), watched.stderr + expected.stderr
        assert lines(watched.stdout) == lines(expected.stdout) != []
        assert json.loads(report.read_text())["results"] == []
        assert "ddpdoctor" not in watched.stderr

    return run


@pytest.mark.usefixtures("no_process_left")
class TestHealthyTrainings:
    """What people train with: the watch is silent, and changes not a bit."""

    @pytest.mark.parametrize("training", TRAININGS)
    def test_of_torch(self, compare: Callable[..., None], python: str, training: str) -> None:
        """Its own wrappers, sharded optimizer and uneven inputs; gradients accumulated; two models at once."""
        if training == "fsdp2":
            pytest.importorskip("torch.distributed.fsdp._fully_shard", reason="FSDP2 is there since torch 2.6")
        compare([python], OF_TORCH, training)

    def test_of_a_compiled_model(self, compare: Callable[..., None], python: str) -> None:
        """torch.compile within DDP and around it."""
        compare([python], COMPILED)

    @pytest.mark.skipif(find_spec("lightning") is None, reason="needs lightning")
    def test_of_lightning(self, compare: Callable[..., None], python: str) -> None:
        """Its strategy ddp starts the second rank by itself and splits the data by itself."""
        compare([python], LIGHTNING)

    @pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate")
    def test_of_accelerate(self, compare: Callable[..., None], torchrun: Command) -> None:
        """It splits the batches by itself, and counts micro-batches by itself."""
        compare(torchrun, ACCELERATE)


def test_a_launcher_whose_child_fails_is_not_explained(python: str, ddpdoctor: Run, script: Script) -> None:
    """The child has printed why: the error that says that it failed is no failure of a rank."""
    path = script("import subprocess, sys, torch\nsubprocess.run([sys.executable, '-c', 'exit(3)'], check=True)\n")
    done = ddpdoctor("run", "-q", "--", python, path)

    assert done.returncode == 1
    assert "CalledProcessError" in done.stderr
    assert "ddpdoctor" not in done.stderr


WAITING = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
import torch._dynamo  # once, where else each rank that is forked does so at its first step
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def worker(rank, queue):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + os.environ["PORT"], rank=rank, world_size=2)
    data = TensorDataset(torch.randn(64, 8))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for (inputs,) in loader:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    queue.put(rank)

if __name__ == "__main__":
    queue = mp.get_context("fork").SimpleQueue()
    mp.start_processes(worker, (queue,), nprocs=2, start_method="fork", join=False)
    queue.get()
"""


@pytest.mark.usefixtures("no_process_left")
def test_a_rehearsal_is_over_when_its_ranks_are(ddpdoctor: Run, script: Script) -> None:
    """A launcher that waits for a result of ranks that were ended early does not hold the rehearsal to its limit."""
    began = time.monotonic()
    done = ddpdoctor("check", "--only", "DDP604", "--", sys.executable, script(WAITING))

    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 60, "half of --timeout"
