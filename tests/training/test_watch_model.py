"""Faults of models, optimizers and checkpoints in more shapes than the broken cases have: found once, at the line."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, FIXTURES, TESTS, Run, Script, assert_only

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "model_head.txt").read_text(encoding="utf-8")
END = "\ndist.destroy_process_group()\n"

FAULTS = {
    "the bare model is called": (
        "forward-bypasses-ddp",
        "bypasses DistributedDataParallel",
        """
        bare = net()
        model = DDP(bare)
        optimizer = sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.mse_loss(bare(batch()[0]), batch()[1]).backward()  # guilty
            optimizer.step()
        """,
    ),
    "a group of the optimizer is chosen by names that the wrapped model has not": (
        "optimizer-holds-other-parameters",
        "1 group of SGD holds nothing, and 2 parameters",
        """
        model = DDP(net())
        first = [p for name, p in model.named_parameters() if name.startswith("0.")]  # guilty
        rest = [p for name, p in model.named_parameters() if "2." in name]
        optimizer = torch.optim.SGD([{"params": first, "lr": 0.01}, {"params": rest}], lr=0.1)
        fit(model, optimizer)
        """,
    ),
    "rank 0 alone clips the gradients": (
        "replicas-diverge",
        "for rank 0 alone clips the gradients",
        """
        model = DDP(net())
        optimizer = sgd(model)
        def clip():
            if rank == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)  # guilty
        for _ in range(12):
            step(model, optimizer, clip)
        """,
    ),
    "rank 0 alone prunes a layer": (
        "replicas-diverge",
        "0.weight is written on one rank alone, under `if number % 4 == 3 and rank == 0`",
        """
        model = DDP(net())
        optimizer = sgd(model)
        def prune(layer):
            with torch.no_grad():
                layer.weight[layer.weight.abs() < 0.1] = 0  # guilty
        for number in range(12):
            step(model, optimizer)
            if number % 4 == 3 and rank == 0:
                prune(model.module[0])
        """,
    ),
    "the ranks build the layers in another order": (
        "parameters-differ",
        "in another order",
        """
        class Tables(nn.Module):
            def __init__(self, names):
                super().__init__()
                self.of = nn.ModuleDict({name: nn.Linear(8, 4) for name in names})
            def forward(self, inputs):
                return self.of["a"](inputs) + self.of["b"](inputs).relu()
        model = DDP(Tables("ba" if rank else "ab"))  # guilty
        optimizer = sgd(model)
        fit(model, optimizer)
        """,
    ),
    "a loss with weights that begin as zeros has an optimizer of its own, beside DDP": (
        "gradients-exchanged-in-part",
        "criterion.weights",
        """
        class Weighted(nn.Module):
            def __init__(self):
                super().__init__()
                self.weights = nn.Parameter(torch.zeros(4))
            def forward(self, losses):
                return (losses * torch.exp(-self.weights) + self.weights / 2).sum()
        model, criterion = DDP(net()), Weighted()
        optimizer = sgd(model)
        own = torch.optim.SGD(criterion.parameters(), lr=0.05)  # guilty
        for _ in range(6):
            inputs, targets = batch()
            loss = criterion((model(inputs) - targets).square().mean(0))
            optimizer.zero_grad()
            own.zero_grad()
            loss.backward()
            optimizer.step()
            own.step()
        """,
    ),
    "a head beside DDP that each rank has begun by itself, one data set shared out": (
        "gradients-exchanged-in-part",
        "began with other values on each rank",
        """
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(64, 8))
        torch.manual_seed(1 + rank)
        model, head = DDP(net()), nn.Linear(4, 4)
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.05)  # guilty
        for (inputs,) in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
            optimizer.zero_grad()
            head(model(inputs)).square().mean().backward()
            optimizer.step()
        """,
    ),
    "adapters that are trained are on DDP's ignore list": (
        "gradients-exchanged-in-part",
        "on DDP's ignore list",
        """
        torch.manual_seed(0)
        bare = net()
        DDP._set_params_and_buffers_to_ignore_for_model(bare, [n for n, _ in bare[0].named_parameters("0")])  # guilty
        model = DDP(bare)
        torch.manual_seed(1 + rank)
        fit(model, sgd(model))
        """,
    ),
    "an attribute of the model has the ignore list": (
        "gradients-exchanged-in-part",
        "on DDP's ignore list",
        """
        torch.manual_seed(0)
        bare = net()
        bare._ddp_params_and_buffers_to_ignore = ["2.weight"]  # guilty
        model = DDP(bare)
        torch.manual_seed(1 + rank)
        fit(model, sgd(model))
        """,
    ),
    "the backward of a sum over the ranks adds nothing up": (
        "gathered-gradients-not-summed",
        "the backward of an all_reduce",
        """
        class Sum(torch.autograd.Function):
            @staticmethod
            def forward(ctx, given):
                total = given.clone()
                dist.all_reduce(total)
                return total
            @staticmethod
            def backward(ctx, gradient):
                return gradient  # guilty
        class Centred(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(8, 4)
            def forward(self, inputs):
                found = self.inner(inputs)
                mean = Sum.apply(found.mean(0)) / 2
                return (found - mean).tanh() + mean.square()
        model = DDP(Centred())
        fit(model, sgd(model))
        """,
    ),
    "a tied weight is reduced once for each layer that has it": (
        "gradients-not-the-mean",
        "summed twice",
        """
        first, last = nn.Embedding(12, 6), nn.Linear(6, 12, bias=False)
        last.weight = first.weight
        middle = nn.Linear(6, 6)
        model = nn.Sequential(first, middle, nn.Tanh(), last)
        for each in model.parameters():
            dist.broadcast(each.data, 0)
        optimizer = sgd(model)
        for _ in range(6):
            tokens = torch.randint(0, 12, (16,))
            loss = nn.functional.cross_entropy(model(tokens), (tokens * 5) % 12) / world
            optimizer.zero_grad()
            loss.backward()
            for part in (first, middle, last):
                for each in part.parameters():
                    dist.all_reduce(each.grad)  # guilty
            optimizer.step()
        """,
    ),
    "a method behind the wrapper is called": (
        "forward-bypasses-ddp",
        "bypasses DistributedDataParallel",
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = net()
            def forward(self, inputs):
                return self.inner(inputs)
            def loss(self, inputs, targets):
                return nn.functional.mse_loss(self.inner(inputs), targets)
        model = DDP(Model())
        optimizer = sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            model.module.loss(*batch()).backward()  # guilty
            optimizer.step()
        """,
    ),
    "the bare model is called, in a closure": (
        "forward-bypasses-ddp",
        "bypasses DistributedDataParallel",
        """
        bare = net()
        model = DDP(bare)
        optimizer = sgd(model)
        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(bare(batch()[0]), batch()[1])  # guilty
            loss.backward()
            return loss
        for _ in range(4):
            optimizer.step(closure)
        """,
    ),
    "a layer is not used, and a closure computes the gradients": (
        "unused-parameters",
        "got no gradient",
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.spare = net(), nn.Linear(8, 4)
            def forward(self, inputs):
                return self.used(inputs)
        model = DDP(Model())
        optimizer = sgd(model)
        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch()[0]), batch()[1])  # guilty
            loss.backward()
            return loss
        import time
        for _ in range(4):
            optimizer.step(closure)
            time.sleep(1)  # the first step is compared before the second fails
        """,
    ),
    "no_sync around the whole loop": (
        "no-sync-on-last-batch",
        "every forward is within no_sync",
        """
        model = DDP(net())
        optimizer = sgd(model)
        with model.no_sync():
            for _ in range(4):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(batch()[0]), batch()[1]).backward()  # guilty
                optimizer.step()
        """,
    ),
    "a head is added after wrapping": (
        "parameters-changed-after-wrapping",
        "2.weight, 2.bias",
        """
        class Model(nn.Sequential):
            pass
        model = DDP(Model(nn.Linear(8, 16), nn.ReLU()))  # guilty
        model.module.append(nn.Linear(16, 4))
        fit(model, sgd(model), 4)
        """,
    ),
    "a part is frozen after wrapping": (
        "parameters-changed-after-wrapping",
        "0.weight was frozen",
        """
        model = DDP(net())  # guilty
        model.module[0].requires_grad_(False)
        fit(model, sgd(model), 4)
        """,
    ),
    "a head is replaced after wrapping": (
        "parameters-changed-after-wrapping",
        "2.weight was replaced",
        """
        model = DDP(net())  # guilty
        optimizer = sgd(model)
        model.module[2] = nn.Linear(16, 4)
        fit(model, optimizer, 4)
        """,
    ),
    "only rank 0 loads, after wrapping": (
        "replicas-diverge",
        "differ before the first step",
        """
        model = DDP(net())
        if rank == 0:
            model.module.load_state_dict(net().state_dict())  # guilty
        fit(model, sgd(model), 4)
        """,
    ),
    "gradients are changed on each rank for itself": (
        "replicas-diverge",
        "the replicas diverge",
        """
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model).backward()
            for parameter in model.parameters():
                parameter.grad += torch.randn_like(parameter)
            optimizer.step()  # guilty
        """,
    ),
    "the wrapper of the last epoch is wrapped": (
        "wrapped-repeatedly",
        "once by each wrapper",
        """
        model = net()
        optimizer = sgd(model)
        for _ in range(3):
            model = DDP(model)  # guilty
            fit(model, optimizer, 3)
        """,
    ),
    "a head is replaced after the optimizer was built": (
        "optimizer-holds-other-parameters",
        "the new one is in no optimizer",
        """
        model = net()
        optimizer = sgd(model)
        model[2] = nn.Linear(16, 4)
        model = DDP(model)
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()  # guilty
        """,
    ),
    "the optimizer holds the frozen part": (
        "optimizer-holds-other-parameters",
        "none of the model's",
        """
        model = net()
        model[0].requires_grad_(False)
        optimizer = sgd(model[0])
        model = DDP(model)
        for _ in range(4):
            loss_of(model).backward()
            optimizer.step()  # guilty
        """,
    ),
    "gradients are averaged by hand, too": (
        "gradients-reduced-twice",
        "communicated twice",
        """
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model).backward()
            for parameter in model.parameters():
                parameter.grad /= world
                dist.all_reduce(parameter.grad)  # guilty
            optimizer.step()
        """,
    ),
    "bare keys into the wrapped model": (
        "nothing-loaded",
        "those of the model carry module.",
        """
        model = DDP(net())
        model.load_state_dict(net().state_dict(), strict=False)  # guilty
        """,
    ),
    "the whole training state instead of the weights": (
        "nothing-loaded",
        "lies deeper",
        """
        model = net()
        model.load_state_dict({"model": net().state_dict(), "epoch": 3}, strict=False)  # guilty
        """,
    ),
    "what the file has of the model's own keys, which is nothing": (
        "nothing-loaded",
        "the values that it had",
        """
        path = f"{shared_folder()}/pretrained.pt"
        if rank == 0:
            torch.save({f"module.{key}": value for key, value in net().state_dict().items()}, path)
        dist.barrier()
        model = net()
        own = model.state_dict()
        own.update({key: value for key, value in torch.load(path).items() if key in own})
        model.load_state_dict(own)  # guilty
        wrapped = DDP(model)
        fit(wrapped, sgd(wrapped))
        """,
    ),
    "handles in a list that nobody keeps": (
        "async-work-not-waited",
        "all_reduce",
        """
        for _ in range(3):
            [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2)]  # guilty
            dist.barrier()
        """,
    ),
    "gradients that are stepped with while they are exchanged": (
        "async-work-not-waited",
        "while all_reduce still writes to the gradients",
        """
        model = net()
        handles = []
        def exchange(parameter):
            parameter.grad /= world
            handles.append(dist.all_reduce(parameter.grad, async_op=True))
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(exchange)
        optimizer = sgd(model)
        for _ in range(6):
            optimizer.zero_grad(set_to_none=False)
            loss_of(model).backward()
            optimizer.step()  # guilty
            for handle in handles:
                handle.wait()
            handles.clear()
        """,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_fault_is_found(fault: tuple[str, str, str], tmp_path: Path, jobs: Jobs) -> None:
    """One finding says what is wrong and gives the line, and no other check speaks."""
    slug, words, script = fault
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + END)

    assert_only(watched(path, CHECKS, jobs), slug, words, path)


LOADED = {
    "the prefix is taken off": "own.update({key[7:]: value for key, value in torch.load(path).items()})",
    "the file is of another network": (
        "torch.save({f'encoder.layer.{key}': value for key, value in net().state_dict().items()}, path)\n"
        "own.update({key: value for key, value in torch.load(path).items() if key in own})"
    ),
    "another module has taken it": (
        "other = net(); other.load_state_dict({key[7:]: value for key, value in torch.load(path).items()})"
    ),
}


@pytest.mark.parametrize("takes", LOADED.values(), ids=LOADED)
def test_a_state_dict_that_is_loaded_back_is_no_fault(takes: str, tmp_path: Path, jobs: Jobs) -> None:
    """A module is given values that it has where the file was for it, for another network, or for another module."""
    path = tmp_path / "train.py"
    script = f"""
path = f"{{shared_folder()}}/pretrained{{rank}}.pt"
torch.save({{f"module.{{key}}": value for key, value in net().state_dict().items()}}, path)
model = net()
own = model.state_dict()
{takes}
model.load_state_dict(own)
wrapped = DDP(model)
fit(wrapped, sgd(wrapped))
"""
    path.write_text(HEAD + script + END)

    assert [found.check.slug for found in watched(path, CHECKS, jobs)] == []


NOT_REACHED = """
import torch
import torch.distributed as dist
import torch.utils.data.distributed as shares

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(8, 4)
if torch.cuda.is_available():
    model = torch.nn.parallel.DistributedDataParallel(model)  # the line
optimizer = torch.optim.SGD(model.parameters(), 0.01)  # guilty
data = torch.utils.data.TensorDataset(torch.arange(256.0).reshape(32, 8))
loader = torch.utils.data.DataLoader(data, 4, sampler=shares.DistributedSampler(data))
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs / 256).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
"""


def test_the_line_that_wraps_and_was_not_reached_is_shown(tmp_path: Path, jobs: Jobs) -> None:
    """Ranks that begin with different weights are one training where the script has a line that wraps the model."""
    path = tmp_path / "train.py"
    path.write_text(NOT_REACHED)
    lines = path.read_text().splitlines()
    guilty, wraps = (next(at for at, text in enumerate(lines, 1) if f"# {word}" in text) for word in ("guilty", "the"))

    ((check, finding),) = watched(path, CHECKS, jobs)

    assert check.slug == "gradients-not-exchanged"
    assert finding.place.line == guilty
    assert f"{path}:{wraps}" in {each.source for each in finding.evidence}


FORKED = """
import os, runpy, sys
import torch._dynamo  # once, where else each rank that is forked does so at its first step
import torch.multiprocessing as mp

def rank(number):
    os.environ.update(RANK=str(number), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"])
    runpy.run_path(sys.argv[1], run_name="__main__")

if __name__ == "__main__":
    mp.start_processes(rank, nprocs=2, start_method="fork")
"""


LONG = """
import sys, random, torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

class Own(Sampler):
    def __init__(self, n, rank, world):
        self.n, self.rank, self.world, self.epoch = n, rank, world, 0
    def __iter__(self):
        order = list(range(self.n))
        random.Random({seed}).shuffle(order)
        return iter(order[self.rank :: self.world])
    def __len__(self):
        return self.n // self.world

if __name__ == "__main__":
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(400, 8, generator=torch.Generator().manual_seed(0)))
    sampler = Own(400, dist.get_rank(), dist.get_world_size())
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for sampler.epoch in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("seed", ["self.epoch + self.rank", "self.epoch"])
def test_a_rehearsal_that_cuts_epochs_short_compares_the_whole_shares(
    seed: str, ddpdoctor: Run, script: Script
) -> None:
    """The rest of what the samplers draw is looked at; the seed with the rank is given without it."""
    training = script(LONG.format(seed=seed))

    done = ddpdoctor("check", "--only", "shards-overlap", "--", sys.executable, "-m", "torch.distributed.run",
                     "--standalone", "--nproc-per-node=2", training)  # fmt: skip

    assert ("DDP606 shards-overlap" in done.stdout, done.returncode) == ((True, 1) if "rank" in seed else (False, 0))
    if "rank" in seed:
        assert "+        random.Random(self.epoch).shuffle(order)" in done.stdout


def test_a_rehearsal_asks_the_checks_that_only_watch(ddpdoctor: Run, script: Script) -> None:
    """A check without a probe speaks in ``ddpdoctor check -- COMMAND``, and there only."""
    training = str(FIXTURES / "forward_bypasses_ddp" / "broken.py")

    done = ddpdoctor("check", "--only", "forward-bypasses-ddp", "--", sys.executable, script(FORKED), training)

    assert done.returncode == 1
    assert "DDP560 forward-bypasses-ddp" in done.stdout
    assert ddpdoctor("check", "--only", "forward-bypasses-ddp").returncode == 2
