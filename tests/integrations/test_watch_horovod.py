"""Trainings of Horovod, as their users write them: run by night, with the package itself, where it was built.

By day a stand-in of one rank shows what does not need another one: that the rank is seen, and its steps counted once.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frameworks import faults, hang_after, results_in
from helpers import LOAD, Run, Script

with_horovod = pytest.mark.skipif(
    importlib.util.find_spec("horovod") is None, reason="needs Horovod, which has to be built (docs/frameworks.md)"
)
TRAINING = """
import sys
import torch
import horovod.torch as hvd
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

mode = sys.argv[1]
hvd.init()
torch.manual_seed(3 if mode == "same samples" else 10 + hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
drawn = torch.Generator().manual_seed(3)
data = TensorDataset(torch.randn(96, 8, generator=drawn), torch.randint(0, 2, (96,), generator=drawn))
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
shared = {"shuffle": True} if mode == "same samples" else {"sampler": sampler}
loader = DataLoader(data, batch_size=8, **shared)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001 * hvd.size())
passes = 2 if mode in {"accumulates", "unannounced"} else 1
if mode != "plain optimizer":
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        backward_passes_per_step=2 if mode == "accumulates" else 1,
    )
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
if mode != "no broadcast":
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        for _ in range(passes):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
        if mode == "clips":
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
    if mode != "one rank" or hvd.rank() == 0:
        mean = hvd.allreduce(loss.detach(), name="loss")
    if hvd.rank() == 0:
        torch.save(model.state_dict(), "model.pt")
"""
Watched = Callable[..., tuple[list[Any], str]]


@pytest.fixture
def watched(ddpdoctor: Run, script: Script, tmp_path: Path) -> Watched:
    """Return a function that runs the training in a mode on two ranks, and gives what is found and what is said."""

    def run(mode: str, *options: str) -> tuple[list[Any], str]:
        report = tmp_path / "report.json"
        ranks = (str(Path(sys.executable).with_name("horovodrun")), "-np", "2", "--gloo")
        told = ("run", *hang_after(10), "--report", str(report), *options, "--", *ranks)
        done = ddpdoctor(*told, sys.executable, script(TRAINING), mode)
        return results_in(report, done), done.stdout + done.stderr

    return run


@with_horovod
@pytest.mark.nightly
@pytest.mark.timeout(300 * LOAD)
@pytest.mark.parametrize("mode", ["healthy", "accumulates", "clips"])
def test_a_healthy_one_gets_no_finding(watched: Watched, mode: str) -> None:
    """Both ranks are seen, and each step is compared with the averaged gradients; the one that prepares is none."""
    found, said = watched(mode)
    assert found == []
    assert "Watched 2 ranks, 18 steps of each" in said
    assert "gradients equal, weights equal" in " ".join(said.split())


@with_horovod
@pytest.mark.nightly
@pytest.mark.timeout(300 * LOAD)
@pytest.mark.parametrize(
    ("mode", "slug", "words"),
    [
        ("no broadcast", "replicas-begin-apart", "hvd.broadcast_parameters"),
        ("plain optimizer", "gradients-not-exchanged", "hvd.DistributedOptimizer"),
        ("same samples", "same-samples-on-ranks", "num_replicas=hvd.size()"),
        ("unannounced", "horovod-accumulates-unannounced", "backward_passes_per_step"),
    ],
)
def test_a_broken_one_is_named(watched: Watched, mode: str, slug: str, words: str) -> None:
    """In the words of Horovod."""
    found, _ = watched(mode)
    assert [each["slug"] for each in faults(found)] == [slug]
    assert words in json.dumps(found[0]["findings"][0]["fix"])


STAND_IN = {
    "__init__.py": """
from horovod.torch import mpi_ops, optimizer
from horovod.torch.mpi_ops import init, shutdown, rank, size
from horovod.torch.optimizer import DistributedOptimizer, broadcast_optimizer_state
""",
    "mpi_ops.py": """
def init(): pass
def shutdown(): pass
def rank(): return 0
def size(): return 1
""",
    "optimizer.py": """
import torch

class _DistributedOptimizer(torch.optim.Optimizer):
    def __init__(self, params):
        super(self.__class__, self).__init__(params)

    def synchronize(self):
        pass

    def step(self, closure=None):
        self.synchronize()
        return super(self.__class__, self).step(closure)

def DistributedOptimizer(optimizer):
    kind = type(optimizer)
    return type(kind.__name__, (kind,), dict(_DistributedOptimizer.__dict__))(optimizer.param_groups)

def broadcast_optimizer_state(optimizer):
    super(type(optimizer), optimizer).step()
""",
}
ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
import horovod.torch as hvd

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
hvd.broadcast_optimizer_state(optimizer)
for _ in range(3):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
hvd.shutdown()
"""


def test_a_step_counts_once(ddpdoctor: Run, script: Script, tmp_path: Path) -> None:
    """Torch sees two steps, one within the other, and the one that prepares the state: the rank has made three."""
    package = tmp_path / "stand_in" / "horovod" / "torch"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    for name, text in STAND_IN.items():
        (package / name).write_text(text)
    done = ddpdoctor("run", "--", sys.executable, script(ALONE), str(tmp_path / "stand_in"))
    assert done.returncode == 0
    assert "Watched 1 rank, 3 steps" in done.stdout + done.stderr
