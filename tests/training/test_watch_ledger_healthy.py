"""Trainings whose gradients differ between ranks on purpose, or are exchanged in ways of their own: silence."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, TESTS

from ddpdoctor.jobs.outcome import Returned
from ddpdoctor.watch.pooled import Launch, watch_in_pool

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "model_head.txt").read_text(encoding="utf-8")
END = "\ndist.destroy_process_group()\n"

HEALTHY = {
    "a loss of each row, with a weight of its class": """
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(12):
            inputs, targets = batch()
            outputs, loss = model(inputs), 0
            for at in range(len(inputs)):
                weight = 2.0 if targets[at, 0] > 0 else 1.0
                loss = loss + weight * nn.functional.mse_loss(outputs[at : at + 1], targets[at : at + 1])
            optimizer.zero_grad()
            (loss / len(inputs)).backward()
            optimizer.step()
    """,
    "a loss of each row of a larger batch, with a weight of its class": """
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(12):
            inputs, targets = torch.randn(40, 8), torch.randn(40, 4)
            outputs, loss = model(inputs), 0
            for at in range(len(inputs)):
                weight = 2.0 if targets[at, 0] > 0 else 1.0
                loss = loss + weight * nn.functional.mse_loss(outputs[at : at + 1], targets[at : at + 1])
            optimizer.zero_grad()
            (loss / len(inputs)).backward()
            optimizer.step()
    """,
    "an ensemble, each rank with a seed of its own": """
        model = net()
        fit(model, sgd(model), 40)
        scores = [None] * world
        dist.all_gather_object(scores, rank)
    """,
    "a sweep over learning rates, from the same weights": """
        model = same
        fit(model, sgd(model, lr=0.01 * (rank + 1)), 40)
        mean = torch.ones(1)
        dist.all_reduce(mean)
    """,
    "a fold for each rank, from the same weights": """
        model = same
        fit(model, sgd(model), 40)
        scores = [None] * world
        dist.all_gather_object(scores, rank)
    """,
    "reduced in the step of an optimizer of one's own": """
        class Averaging(torch.optim.SGD):
            def step(self, closure=None):
                for group in self.param_groups:
                    for parameter in group["params"]:
                        dist.all_reduce(parameter.grad)
                        parameter.grad /= world
                return super().step(closure)
        model = same
        fit(model, Averaging(model.parameters(), lr=0.1))
    """,
    "reduced by hooks of the parameters": """
        model = same
        def average(parameter):
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(average)
        fit(model, sgd(model))
    """,
    "reduced by hooks of the tensors, as they come": """
        model = same
        def averaged(gradient):
            gradient = gradient.clone()
            dist.all_reduce(gradient)
            return gradient / world
        for parameter in model.parameters():
            parameter.register_hook(averaged)
        fit(model, sgd(model))
    """,
    "a step within a hook of one's own, on one rank's model each": """
        model = net()
        steps = {each: torch.optim.SGD([each], lr=0.01) for each in model.parameters()}
        def apply(parameter):
            steps[parameter].step()
            steps[parameter].zero_grad()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(apply)
        for _ in range(6):
            loss_of(model).backward()
    """,
    "summed over ranks, the loss divided before": """
        model = same
        optimizer = sgd(model)
        for _ in range(12):
            optimizer.zero_grad()
            (loss_of(model) / world).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
    """,
    "summed over ranks, the loss a sum over samples": """
        model = same
        optimizer = sgd(model, 1e-4)
        for _ in range(12):
            optimizer.zero_grad()
            inputs, targets = batch()
            nn.functional.mse_loss(model(inputs), targets, reduction="sum").backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
    """,
    "averaged by AVG of a list, with clipping by value": """
        model = same
        optimizer = sgd(model)
        def average():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad.mul_(1 / world)
            nn.utils.clip_grad_value_(model.parameters(), 0.01)
        for _ in range(12):
            step(model, optimizer, average)
    """,
    "two micro-batches, averaged by hand after the second": """
        model = same
        optimizer = sgd(model)
        for index in range(24):
            (loss_of(model) / 2).backward()
            if index % 2:
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= world
                optimizer.step()
                optimizer.zero_grad()
    """,
    "gossip: parameters are exchanged with a neighbour": """
        model = same
        optimizer = sgd(model)
        for index in range(36):
            step(model, optimizer)
            for parameter in model.parameters():
                theirs = torch.empty_like(parameter)
                works = dist.batch_isend_irecv([dist.P2POp(dist.isend, parameter.data, 1 - rank),
                                                dist.P2POp(dist.irecv, theirs, 1 - rank)])
                for work in works:
                    work.wait()
                parameter.data.lerp_(theirs, 0.3)
    """,
    "elastic averaging: pulled towards a centre": """
        model = same
        optimizer = sgd(model)
        for index in range(36):
            step(model, optimizer)
            if index % 4 == 3:
                for parameter in model.parameters():
                    centre = parameter.data.clone()
                    dist.all_reduce(centre)
                    parameter.data.lerp_(centre / world, 0.3)
    """,
    "local steps after a warm-up with averages": """
        model = same
        optimizer = sgd(model)
        def average():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        for index in range(40):
            step(model, optimizer, average if index < 5 else lambda: None)
            if index >= 5 and index % 5 == 4:
                for parameter in model.parameters():
                    dist.all_reduce(parameter.data)
                    parameter.data /= world
    """,
    "a pipeline of two stages, a part on each rank": """
        stage = nn.Linear(8, 8)
        optimizer = sgd(stage)
        for _ in range(12):
            optimizer.zero_grad()
            if rank == 0:
                out = stage(batch()[0])
                dist.send(out.detach(), 1)
                gradient = torch.empty(8, 8)
                dist.recv(gradient, 1)
                out.backward(gradient)
            else:
                given = torch.empty(8, 8)
                dist.recv(given, 0)
                given.requires_grad_()
                nn.functional.mse_loss(stage(given), torch.ones(8, 8)).backward()
                dist.send(given.grad, 0)
            optimizer.step()
    """,
    "experts that begin alike, reached by all_to_all": """
        torch.manual_seed(0)
        expert, gate = nn.Linear(8, 8), DDP(nn.Linear(8, 8))
        optimizer = torch.optim.SGD([*expert.parameters(), *gate.parameters()], lr=0.05)
        torch.manual_seed(1 + rank)
        for _ in range(12):
            tokens = gate(batch()[0])
            mixed = torch.empty(8, 8)
            dist.all_to_all_single(mixed, tokens.detach())
            loss = expert(mixed).square().mean() + tokens.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "columns of a layer on each rank": """
        torch.manual_seed(rank)
        shard = nn.Linear(8, 4)
        optimizer = sgd(shard)
        torch.manual_seed(5)
        for _ in range(12):
            inputs, targets = batch()
            out = [torch.empty(8, 4) for _ in range(world)]
            mine = shard(inputs)
            dist.all_gather(out, mine.detach())
            out[rank] = mine
            loss = torch.cat(out, 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "weights in shared memory": """
        model = same
        model.share_memory()
        fit(model, sgd(model), 40)
        mean = torch.ones(1)
        dist.all_reduce(mean)
    """,
    "a model that rank 0 trains alone, weights broadcast to those that act": """
        model = same
        optimizer = sgd(model)
        for _ in range(6):
            if rank == 0:
                step(model, optimizer)
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)
    """,
    "half precision, averaged by DDP": """
        model = DDP(net().to(torch.bfloat16))
        optimizer = sgd(model)
        for _ in range(12):
            inputs, targets = batch()
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs.bfloat16()), targets.bfloat16()).backward()
            optimizer.step()
    """,
    "half precision, averaged by hand": """
        model = same.to(torch.bfloat16)
        optimizer = sgd(model)
        for _ in range(12):
            inputs, targets = batch()
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs.bfloat16()), targets.bfloat16()).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
    """,
    "gradients that are sparse": """
        torch.manual_seed(0)
        table = nn.Embedding(50, 8, sparse=True)
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.01)
        torch.manual_seed(1 + rank)
        for _ in range(6):
            optimizer.zero_grad()
            table(torch.randint(0, 50, (8,))).square().sum().backward()
            parts = [None] * world
            dist.all_gather_object(parts, table.weight.grad.coalesce())
            table.weight.grad = sum(parts[1:], parts[0]) / world
            optimizer.step()
    """,
    "an evaluation with fine-tuning at test time, on a copy": """
        model = DDP(net())
        optimizer = sgd(model)
        fit(model, optimizer, 4)
        own = copy.deepcopy(model.module)
        fit(own, sgd(own), 4)
        fit(model, optimizer, 4)
    """,
    "fully sharded": """
        from torch.distributed.fsdp import fully_shard
        model = same
        fully_shard(model)
        fit(model, sgd(model))
    """,
    "noise of each rank's own, added before the average": """
        model = same
        optimizer = sgd(model)
        def average():
            for parameter in model.parameters():
                parameter.grad += 0.1 * torch.randn_like(parameter)
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        for _ in range(12):
            step(model, optimizer, average)
    """,
    "signs by majority": """
        model = same
        optimizer = sgd(model, 1e-3)
        def vote():
            for parameter in model.parameters():
                parameter.grad.sign_()
                dist.all_reduce(parameter.grad)
                parameter.grad.sign_()
        for _ in range(12):
            step(model, optimizer, vote)
    """,
    "an optimizer that is dropped before it steps, and models that come and go": """
        for _ in range(3):
            model = DDP(net())
            sgd(model)
            fit(model, sgd(model), 3)
    """,
}


def test_messages_to_neighbours_are_no_clock(jobs: Jobs, tmp_path: Path) -> None:
    """Of ranks in a row the one between has two neighbours, so that gloo counts more of it in each step."""
    body = """
        def swap():
            near = [each for each in (rank - 1, rank + 1) if 0 <= each < world]
            sends = [dist.P2POp(dist.isend, torch.ones(2), each) for each in near]
            gets = [dist.P2POp(dist.irecv, torch.ones(2), each) for each in near]
            for each in dist.batch_isend_irecv(sends + gets):
                each.wait()
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(6):
            swap()
            step(model, optimizer)
    """
    script = tmp_path / "train.py"
    script.write_text(HEAD + dedent(body) + END, encoding="utf-8")

    launch = Launch(script=script, ranks=3, hang_after=100.0)
    outcomes, found, _ = watch_in_pool(launch, CHECKS, jobs, lambda _: False)

    assert [str(each) for each in outcomes if not isinstance(each, Returned)] == []
    assert [(each.check.slug, each.finding.message) for each in found] == []


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found(name: str, jobs: Jobs, tmp_path: Path) -> None:
    """The script ends well on two ranks, and no check says anything."""
    script = tmp_path / "train.py"
    body = dedent(HEALTHY[name])
    prepared = "torch.manual_seed(0)\nsame = net()\ntorch.manual_seed(1 + rank)\n"
    script.write_text(HEAD + prepared + body + END, encoding="utf-8")

    launch = Launch(script=script, hang_after=100.0)
    outcomes, found, _ = watch_in_pool(launch, CHECKS, jobs, lambda _: False)

    assert [str(each) for each in outcomes if not isinstance(each, Returned)] == []
    assert [(each.check.slug, each.finding.message) for each in found] == []
