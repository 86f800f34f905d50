"""Trainings that use models, optimizers and checkpoints in healthy ways: the watch, with all its checks, is silent."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, TESTS, assert_nothing

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "model_head.txt").read_text(encoding="utf-8")
END = "\ndist.destroy_process_group()\n"

HEALTHY = {
    "another seed on each rank, an optimizer that was built before wrapping": """
        model = net()
        optimizer = sgd(model)
        fit(DDP(model), optimizer)
    """,
    "accumulation with no_sync on all but the last, 40 steps": """
        model = DDP(net())
        optimizer = sgd(model)
        for index in range(160):
            last = (index + 1) % 4 == 0
            with contextlib.nullcontext() if last else model.no_sync():
                (loss_of(model) / 4).backward()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
    """,
    "a generator and a discriminator, whose losses are means over other numbers, one in every second step": """
        make, judge = DDP(net()), DDP(nn.Linear(4, 1))
        of_make, of_judge = sgd(make), sgd(judge)
        for index in range(24):
            fake = make(torch.randn(4, 8))
            of_judge.zero_grad()
            said = judge(torch.cat([torch.randn(4, 4), fake.detach()]))
            nn.functional.binary_cross_entropy_with_logits(said, torch.ones(8, 1)).backward()
            of_judge.step()
            if index % 2 == 0:
                judge.requires_grad_(False)
                of_make.zero_grad()
                nn.functional.binary_cross_entropy_with_logits(judge(fake), torch.ones(4, 1)).backward()
                of_make.step()
                judge.requires_grad_(True)
    """,
    "an empty group of the optimizer, and all that learns in the others": """
        model = DDP(net())
        rest = [p for name, p in model.named_parameters() if not name.endswith("scale")]
        fit(model, torch.optim.SGD([{"params": []}, {"params": rest}], lr=0.1))
    """,
    "local steps of the bare model, whose weights are averaged in every eighth": """
        model = DDP(net())
        local, optimizer = model.module, sgd(model)
        for index in range(24):
            optimizer.zero_grad()
            loss_of(local).backward()
            optimizer.step()
            if index % 8 == 7:
                for parameter in local.parameters():
                    dist.all_reduce(parameter.data)
                    parameter.data /= dist.get_world_size()
    """,
    "frozen parameters are on DDP's ignore list": """
        torch.manual_seed(0)
        bare = net()
        bare[0].requires_grad_(False)
        DDP._set_params_and_buffers_to_ignore_for_model(bare, ["0.weight", "0.bias"])
        model = DDP(bare)
        torch.manual_seed(1 + rank)
        fit(model, torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.05))
    """,
    "a loss with weights that begin as zeros is wrapped as well, and has an optimizer of its own": """
        class Weighted(nn.Module):
            def __init__(self):
                super().__init__()
                self.weights = nn.Parameter(torch.zeros(4))
            def forward(self, losses):
                return (losses * torch.exp(-self.weights) + self.weights / 2).sum()
        model, criterion = DDP(net()), DDP(Weighted())
        optimizer, own = sgd(model), sgd(criterion)
        for _ in range(6):
            inputs, targets = batch()
            loss = criterion((model(inputs) - targets).square().mean(0))
            optimizer.zero_grad()
            own.zero_grad()
            loss.backward()
            optimizer.step()
            own.step()
    """,
    "the backward of a sum over the ranks adds up as well": """
        class Sum(torch.autograd.Function):
            @staticmethod
            def forward(ctx, given):
                total = given.clone()
                dist.all_reduce(total)
                return total
            @staticmethod
            def backward(ctx, gradient):
                gradient = gradient.contiguous().clone()
                dist.all_reduce(gradient)
                return gradient
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
    "a tied weight is reduced once, by hand": """
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
            for each in model.parameters():
                dist.all_reduce(each.grad)
            optimizer.step()
    """,
    "no_sync around backward alone": """
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(5):
            loss = loss_of(model)
            with model.no_sync():
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "two networks in turn, the second trained three times as often": """
        generator, critic = DDP(net()), DDP(nn.Linear(4, 1))
        first, second = sgd(generator), sgd(critic)
        for _ in range(12):
            for _ in range(3):
                with torch.no_grad():
                    fake = generator(batch()[0])
                loss = critic(fake).mean() - critic(batch()[1]).mean()
                second.zero_grad()
                loss.backward()
                second.step()
            critic.requires_grad_(False)
            loss = -critic.module(generator(batch()[0])).mean()
            first.zero_grad()
            loss.backward()
            first.step()
            critic.requires_grad_(True)
    """,
    "the first network gets gradients of no use while the second trains": """
        generator, critic = DDP(net()), DDP(nn.Linear(4, 1))
        first, second = sgd(generator), sgd(critic)
        for _ in range(10):
            for _ in range(5):
                critic.zero_grad()
                critic(generator(batch()[0])).mean().backward()
                second.step()
            generator.zero_grad()
            with critic.no_sync():
                (-critic(generator(batch()[0])).mean()).backward()
            first.step()
    """,
    "an average of the weights beside, evaluated past the wrapper": """
        model = DDP(net(nn.BatchNorm1d(16)))
        ema = copy.deepcopy(model.module).requires_grad_(False)
        optimizer = sgd(model)
        for _ in range(12):
            step(model, optimizer)
            with torch.no_grad():
                for mean, now in zip(ema.parameters(), model.module.parameters()):
                    mean.lerp_(now, 0.1)
            ema(batch()[0])
        model.eval()
        with torch.no_grad():
            model.module(batch()[0])
    """,
    "frozen parts, all parameters in the optimizer": """
        model = net()
        model[0].requires_grad_(False)
        model = DDP(model)
        fit(model, sgd(model))
    """,
    "only the head in the optimizer": """
        model = DDP(net())
        optimizer = torch.optim.SGD(model.module[2].parameters(), lr=0.1)
        fit(model, optimizer)
    """,
    "unfrozen, wrapped anew, with a new optimizer": """
        bare = net()
        bare[0].requires_grad_(False)
        model = DDP(bare)
        fit(model, sgd(model), 4)
        bare[0].requires_grad_(True)
        model = DDP(bare)
        fit(model, sgd(model), 4)
    """,
    "a rank that evaluates a model without buffers alone": """
        model = DDP(net())
        optimizer = sgd(model)
        fit(model, optimizer, 6)
        if rank == 0:
            with torch.no_grad():
                model(batch()[0])
        fit(model, optimizer, 3)
    """,
    "several forwards before one backward": """
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(5):
            loss = loss_of(model) + loss_of(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "weights of one rank's file, loaded on all after wrapping": """
        model = DDP(net())
        state = [net().state_dict()]
        dist.broadcast_object_list(state)
        model.module.load_state_dict(state[0])
        fit(model, sgd(model), 4)
    """,
    "ZeroRedundancyOptimizer": """
        from torch.distributed.optim import ZeroRedundancyOptimizer
        model = DDP(net())
        fit(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3))
    """,
    "post-local SGD": """
        import torch.distributed.algorithms.model_averaging.averagers as averagers
        from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
        from torch.distributed.optim import PostLocalSGDOptimizer
        model = DDP(net())
        alone = dist.new_subgroups(1)[0]
        model.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=2), post_localSGD_hook)
        averager = averagers.PeriodicModelAverager(period=4, warmup_steps=2)
        fit(model, PostLocalSGDOptimizer(optim=sgd(model), averager=averager))
    """,
    "local SGD: no_sync throughout, parameters averaged every eighth step": """
        model = DDP(net())
        optimizer = sgd(model)
        for index in range(40):
            with model.no_sync():
                step(model, optimizer)
            if index % 8 == 7:
                for parameter in model.parameters():
                    dist.all_reduce(parameter.data)
                    parameter.data /= world
    """,
    "gradients averaged by hand, past the wrapper": """
        model = DDP(net())
        optimizer = sgd(model)
        def average():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        for _ in range(12):
            step(model.module, optimizer, average)
    """,
    "averaged by hand within no_sync, in one flat tensor": """
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(5):
            with model.no_sync():
                loss = loss_of(model)
            with model.no_sync():
                optimizer.zero_grad()
                loss_of(model).backward()
            flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) / world
            dist.all_reduce(flat)
            sizes = [parameter.numel() for parameter in model.parameters()]
            for parameter, part in zip(model.parameters(), flat.split(sizes)):
                parameter.grad.copy_(part.view_as(parameter))
            optimizer.step()
    """,
    "compressed gradients": """
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
        model = DDP(net())
        model.register_comm_hook(None, fp16_compress_hook)
        fit(model, sgd(model))
    """,
    "ranks with different numbers of batches, within Join": """
        from torch.distributed.algorithms.join import Join
        model = DDP(net())
        optimizer = sgd(model)
        with Join([model]):
            fit(model, optimizer, 4 + 3 * rank)
    """,
    "within Join, epoch by epoch": """
        from torch.distributed.algorithms.join import Join
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(4):
            with Join([model]):
                fit(model, optimizer, 4 + 6 * rank)
            totals = torch.ones(2)
            dist.all_reduce(totals)
    """,
    "an optimizer with a closure": """
        model = DDP(net())
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        inputs, targets = batch()
        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            return loss
        for _ in range(5):
            optimizer.step(closure)
            optimizer.zero_grad()
    """,
    "a closure for the last of two micro-batches, as Lightning has it": """
        model = DDP(net())
        optimizer = sgd(model)
        def closure():
            loss = loss_of(model)
            loss.backward()
            return loss
        for _ in range(12):
            with model.no_sync():
                loss_of(model).backward()
            optimizer.step(closure)
            optimizer.zero_grad()
    """,
    "a first step without gradients, for the scheduler": """
        model = DDP(net())
        optimizer = sgd(model)
        optimizer.zero_grad()
        optimizer.step()
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        for _ in range(10):
            step(model, optimizer)
            schedule.step()
    """,
    "a head of each rank's own, for samples of its own": """
        torch.manual_seed(1 + rank)
        model, head = DDP(net()), nn.Linear(4, 4)
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.05)
        for _ in range(6):
            inputs, targets = batch()
            optimizer.zero_grad()
            (head(model(inputs)) - targets).square().mean().backward()
            optimizer.step()
    """,
    "a parameter that DDP is told to ignore": """
        model = net()
        DDP._set_params_and_buffers_to_ignore_for_model(model, ["2.bias"])
        model = DDP(model)
        fit(model, sgd(model), 4)
    """,
    "a second model that only rank 0 has": """
        model = DDP(net())
        optimizer = sgd(model)
        own = net()
        mine = sgd(own)
        for _ in range(5):
            step(model, optimizer)
            if rank == 0:
                step(own, mine)
    """,
    "a model for each rank, in groups of one": """
        groups = [dist.new_group([each]) for each in range(world)]
        model = DDP(net(), process_group=groups[rank])
        fit(model, sgd(model), 5)
    """,
    "mean loss of all ranks, with a handle that is waited for": """
        model = DDP(net())
        optimizer = sgd(model)
        for _ in range(5):
            step(model, optimizer)
            values = [torch.ones(3) for _ in range(4)]
            handles = [dist.all_reduce(value, async_op=True) for value in values]
            for handle in handles:
                handle.wait()
            future = dist.all_reduce(values[0], async_op=True).get_future()
            future.wait()
            pending = dist.all_reduce(values[1], async_op=True)
            while not pending.is_completed():
                pass
            dist.barrier(async_op=True)
    """,
    "gradients that are waited for before the step, each in another way": """
        model = net()
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)
        optimizer = sgd(model)
        for number in range(6):
            optimizer.zero_grad(set_to_none=number % 2 == 0)
            loss_of(model).backward()
            for parameter in model.parameters():
                parameter.grad /= world
            handles = [dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters()]
            if number % 3 == 0:
                torch.futures.wait_all([handle.get_future() for handle in handles])
            for handle in handles:
                while number % 3 == 1 and not handle.is_completed():
                    pass
                if number % 3 == 2:
                    handle.wait()
            pending = dist.all_reduce(torch.zeros(0), async_op=True)
            optimizer.step()
            pending.wait()
        table = nn.Embedding(6, 4, sparse=True)
        dist.broadcast(table.weight.data, 0)
        optimizer = sgd(table)
        for _ in range(4):
            optimizer.zero_grad()
            table(torch.randint(0, 6, (8,))).square().mean().backward()
            pending = dist.all_reduce(torch.ones(2), async_op=True)
            handle = dist.all_reduce(table.weight.grad.div_(world), async_op=True)
            handle.wait()
            table.weight.grad = handle.result()[0].coalesce() if handle.result() else table.weight.grad
            optimizer.step()
            pending.wait()
    """,
    "a training that fits several times": """
        bare = net()
        for _ in range(2):
            model = DDP(bare)
            fit(model, sgd(model), 3)
    """,
    "cross-validation with a new model for each fold": """
        for _ in range(4):
            model = DDP(net())
            fit(model, sgd(model), 3)
    """,
    "rank 0 writes, all read after a barrier; one file for each rank beside": """
        model = DDP(net())
        fit(model, sgd(model), 3)
        folder = shared_folder()
        for _ in range(3):
            torch.save(torch.get_rng_state(), f"{folder}/rng{rank}.pt")
            if rank == 0:
                torch.save(model.module.state_dict(), f"{folder}/last.pt.tmp")
                os.replace(f"{folder}/last.pt.tmp", f"{folder}/last.pt")
            dist.barrier()
            model.module.load_state_dict(torch.load(f"{folder}/last.pt", weights_only=True))
    """,
    "a partial load: a pretrained backbone, a new head; an adapter into a whole model": """
        state = [{key: value for key, value in net().state_dict().items() if key.startswith("0.")}]
        dist.broadcast_object_list(state)
        model = net()
        model.load_state_dict({**state[0], "fc.weight": torch.ones(3, 3)}, strict=False)
        model.load_state_dict({}, strict=False)
        model = DDP(model)
        fit(model, sgd(model), 3)
    """,
    "prefixes tried in turn": """
        state = {f"module.{key}": value for key, value in net().state_dict().items()}
        model = net()
        for prefix in ("", "module."):
            result = model.load_state_dict({key.removeprefix(prefix): state[key] for key in state}, strict=False)
            if not result.missing_keys:
                break
        model = DDP(model)
        fit(model, sgd(model), 3)
    """,
    "resumed where there is a file, begun anew where there is none": """
        folder = shared_folder()
        model = DDP(net())
        try:
            model.module.load_state_dict(torch.load(f"{folder}/last.pt", weights_only=True))
        except FileNotFoundError:
            pass
        fit(model, sgd(model), 3)
        if rank == 0:
            torch.save(model.module.state_dict(), f"{folder}/last.pt")
    """,
    "gradients that become infinite on all ranks, scaled": """
        model = DDP(net())
        optimizer = sgd(model)
        scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else None
        for index in range(6):
            loss = loss_of(model) * (float("inf") if index == 3 else 1)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    """,
}


@pytest.mark.parametrize("script", HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_found_in_a_healthy_training(script: str, tmp_path: Path, jobs: Jobs) -> None:
    """No check finds anything, and the script runs to its end."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + "open(f'{__file__}.{rank}', 'w').close()" + END)

    assert_nothing(watched(path, CHECKS, jobs), path)
