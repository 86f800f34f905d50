"""What the pages of some rules of ``lint`` say is seen on two ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

SCRIPT = """\
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel as DDP


def error(call):
    try:
        call()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"


def differ(model):
    own = torch.cat([p.detach().flatten() for p in model.parameters()])
    all_ranks = [torch.empty_like(own) for _ in range(2)]
    dist.all_gather(all_ranks, own)
    return not torch.equal(*all_ranks)


def train(model, optimizer, steps=2, one_rank=False):
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 2) * (dist.get_rank() + 1 + step)).square().mean().backward()
        if not one_rank or dist.get_rank() == 0:
            optimizer.step()


said = {}
said["backend"] = error(lambda: dist.init_process_group("ncll"))
dist.init_process_group("gloo")
torch.manual_seed(0)
plain = nn.Linear(2, 2)
train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
said["never wrapped"] = differ(plain)

torch.manual_seed(0)
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, optimizer)
said["wrapped"] = differ(model)
train(model, optimizer, one_rank=True)
said["stepped on one rank"] = differ(model)

model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
if dist.get_rank() == 0:
    scheduler.step()
train(model, optimizer, steps=3)
said["scheduler on one rank"] = differ(model)

model = DDP(nn.Linear(2, 2))
if dist.get_rank() == 0:
    model.module.load_state_dict({k: torch.zeros_like(v) for k, v in model.module.state_dict().items()})
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
said["loaded on one rank"] = differ(model)

said["broadcast"] = error(lambda: dist.broadcast(torch.ones(1)))
said["reduce"] = error(lambda: dist.reduce(torch.ones(1)))
said["policy"] = error(lambda: size_based_auto_wrap_policy(min_num_params=10))
with open(f"{sys.argv[1]}/{dist.get_rank()}.json", "w") as file:
    json.dump(said, file)
dist.destroy_process_group()
"""


def test_what_the_pages_say_happens(tmp_path: Path) -> None:
    """Models part without an error, or each rank ends with the error that the page quotes."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run([*command, str(tmp_path)], check=True, timeout=170, capture_output=True)

    for rank in range(2):
        said = json.loads((tmp_path / f"{rank}.json").read_text())

        assert said["never wrapped"]
        assert not said["wrapped"]
        assert said["stepped on one rank"]
        assert said["scheduler on one rank"]
        assert said["loaded on one rank"]
        assert "Unknown backend type ncll" in said["backend"]
        assert said["broadcast"].startswith(("ValueError", "TypeError"))
        assert said["reduce"].startswith(("ValueError", "TypeError"))
        assert "missing 3 required positional arguments" in said["policy"]
