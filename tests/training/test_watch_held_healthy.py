"""Numbers and statistics that ranks rightly have for themselves: the watch, with all its checks, is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.jobs.pool import Jobs

HEAD = """
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, loss_of, steps=10):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    own = torch.Generator().manual_seed(dist.get_rank())
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, torch.randn(8, 6, generator=own), step).backward()
        optimizer.step()
"""
HEALTHY = {
    "choices between the rows of one instance": """
class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, rows):
        return self.q(rows) @ self.k(rows).T

def run():
    target = torch.arange(8).roll(1)
    train(DDP(Sorter()), lambda model, x, step: nn.functional.cross_entropy(model(x), target))
""",
    "samples drawn with replacement, and a best loss that is told": """
def run():
    samples, own, best = torch.randn(300, 6), torch.Generator().manual_seed(dist.get_rank()), [9.0]
    def loss_of(model, x, step):
        loss = model(samples[torch.randint(0, 300, (16,), generator=own)]).square().mean()
        best[0] = min(best[0], loss.item())
        return loss
    train(DDP(nn.Linear(6, 1)), loss_of, 31)
""",
    "a state of each sample of the batch, that is called a variance": """
class Stream:
    def __init__(self):
        self.mem_var, self.mean_state = torch.zeros(8, 6), torch.zeros(8, 6)

    def carry(self, out, inner):
        self.mem_var = 0.9 * self.mem_var + 0.1 * out
        self.mean_state = 0.9 * self.mean_state + 0.1 * inner

def run():
    stream = Stream()
    def loss_of(model, x, step):
        out = model(x - stream.mem_var + stream.mean_state)
        stream.carry(out.detach(), torch.tanh(out.detach()))
        return (out - x).square().mean()
    train(DDP(nn.Linear(6, 6)), loss_of)
""",
    "what is drawn, timed or explored by each rank for itself": """
import random, time

class Augment:
    def __init__(self):
        self.lam, self.angle, self.epsilon, self.speed, self.late = 1.0, 0.0, 1.0, 0.0, 0.0

    def __call__(self, x, own):
        self.lam = own.betavariate(1, 1)
        self.angle += own.uniform(-0.1, 0.1)
        if own.random() < 0.7:
            self.epsilon *= 0.8
        chosen = (torch.rand(len(x), 1) < self.epsilon) * x
        return self.lam * x + (1 - self.lam) * x.flip(0) + self.angle * x + 0 * chosen

    def tell(self, loss, began):
        self.speed = 0.9 * self.speed + 0.1 * (time.time() - began)
        self.late = 0.9 * self.late + 0.1 * loss.item()
        if loss.detach() > 3 * self.late:
            self.late = float(loss)

def run():
    augment, own = Augment(), random.Random(dist.get_rank())
    def loss_of(model, x, step):
        began = time.time()
        loss = model(augment(x, own)).square().mean()
        augment.tell(loss, began)
        return loss
    train(DDP(nn.Linear(6, 6)), loss_of)
""",
    "as many classes as samples, with weights of any kind": """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 5)
        self.plain, self.classes = nn.Linear(5, 8, bias=False), nn.Parameter(torch.randn(8, 5))

    def forward(self, x):
        found = self.inner(x)
        unit = nn.functional.normalize
        return self.plain(found) + 9 * unit(found) @ unit(self.classes).T

def run():
    target = torch.arange(8)
    train(DDP(Heads()), lambda model, x, step: nn.functional.cross_entropy(model(x), target))
""",
    "attention between the rows of one document, and to what a rank has read before": """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x, memory):
        q = self.q(x)
        read = (q @ self.k(x).T).softmax(1) @ self.v(x) + (q @ memory.T).softmax(1) @ memory
        return self.out(read).log_softmax(1)

class Past:
    def __init__(self):
        self.rows = torch.zeros(16, 6)

    def push(self, x):
        self.rows[:8] = self.rows[8:].clone()
        self.rows[8:] = x

def run():
    past = Past()
    def loss_of(model, x, step):
        told = model(x, past.rows.clone())
        past.push(x)
        return -told[:, 0].mean()
    train(DDP(Reader()), loss_of)
""",
    "moments of the batch at hand, as in instance normalisation": """
class Reversible(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        self.look_at(x)
        return self.inner((x - self.mean) / self.std) * self.std + self.mean

    def look_at(self, x):
        self.mean, self.std = x.mean(1, keepdim=True), x.std(1, keepdim=True)

def run():
    train(DDP(Reversible()), lambda model, x, step: (model(x) - x).square().mean())
""",
    "batch normalisation of one's own, whose buffers each rank keeps": """
class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.register_buffer("running_mean", torch.zeros(6))

    def forward(self, x):
        mean = x.mean(0) if self.training else self.running_mean
        self.running_mean = 0.9 * self.running_mean + 0.1 * x.detach().mean(0)
        return self.inner(x - mean)

def run():
    for broadcast in (True, False):
        train(DDP(Normalised(), broadcast_buffers=broadcast), lambda model, x, step: model(x).square().mean())
""",
    "moments that all ranks put together after some steps": """
class Moments:
    def __init__(self):
        self.mean, self.var = torch.zeros(6), torch.ones(6)

    def update(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.var = 0.9 * self.var + 0.1 * x.var(0)

    def apply(self, x):
        return (x - self.mean) / self.var.sqrt()

def run():
    moments = Moments()
    def loss_of(model, x, step):
        moments.update(x)
        if step == 8:
            for each in (moments.mean, moments.var):
                dist.all_reduce(each)
                each /= dist.get_world_size()
        return model(moments.apply(x)).square().mean()
    train(DDP(nn.Linear(6, 1)), loss_of)
""",
    "how far features go, which is only told": """
class Drift:
    def __init__(self):
        self.mean, self.first = torch.zeros(6), torch.zeros(6)

    def see(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        print(f"{(x.mean(0) - self.mean).norm():.3f}")

def run():
    drift = Drift()
    def loss_of(model, x, step):
        drift.see(x)
        return model(x).square().mean()
    train(DDP(nn.Linear(6, 1)), loss_of)
""",
    "a table of a rank's own samples": """
class Part:
    def __init__(self, rank):
        own = torch.Generator().manual_seed(rank)
        self.embeddings, self.scale = torch.randn(48, 6, generator=own), torch.rand(48, 1, generator=own)

    def sample(self, step):
        at = torch.arange(step, step + 8)
        return (self.embeddings[at] + 0.1 * torch.ones(8, 6)) * self.scale[at]

def run():
    part = Part(dist.get_rank())
    train(DDP(nn.Linear(6, 1)), lambda model, x, step: model(part.sample(step)).square().mean())
""",
    "weights of unequal batches from the start, and of tokens as they come": """
class Weights:
    def __init__(self):
        self.batch, self.tokens, self.average = 0.5 + dist.get_rank(), 8.0, 0.0

def run():
    weights = Weights()
    def loss_of(model, x, step):
        rows = 8 if step < 3 else 5 + (step + dist.get_rank()) % 3
        weights.tokens = float(rows) / 7
        loss = model(x[:rows]).square().sum() / weights.tokens * weights.batch
        weights.average = 0.9 * weights.average + 0.1 * loss.item()
        return loss
    train(DDP(nn.Linear(6, 1)), loss_of, 24)
""",
}
END = """
dist.init_process_group("gloo")
torch.manual_seed(0)
run()
open(f"{__file__}.{dist.get_rank()}", "w").close()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_each_ranks_own_is_no_fault(name: str, tmp_path: Path, jobs: Jobs) -> None:
    """Nothing is said of a number that the batch decides, nor of a statistic that no other rank has to have."""
    script = tmp_path / "train.py"
    script.write_text(HEAD + HEALTHY[name] + END)

    found = watched(script, CHECKS, jobs)

    assert [(each.check.slug, each.finding.message) for each in found] == []
    assert sorted(each.suffix for each in tmp_path.glob("train.py*")) == [".0", ".1", ".py"]
