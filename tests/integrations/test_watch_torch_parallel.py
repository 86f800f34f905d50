"""What torch offers beside DDP, in more shapes than the broken cases have: faults found once, healthy trainings not."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
from helpers import CHECKS, TESTS, assert_only

from ddpdoctor.on_import import when_imported
from ddpdoctor.selftest.trainings import watched
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    Event,
    Joined,
    Joining,
    OthersFingerprinted,
    ParametersHeld,
    Started,
    StepFingerprinted,
    WeightsFingerprinted,
)
from ddpdoctor.watch.figures.compared import compared_text
from ddpdoctor.watch.figures.norms import norms_data
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "parallel_head.txt").read_text(encoding="utf-8")
END = "\ndist.destroy_process_group()\n"

FAULTS = {
    "the optimizer before FullyShardedDataParallel, in a class": (
        "optimizer-before-sharding",
        "replaced all of its parameters",
        """
        class Trainer:
            def __init__(self):
                self.model = Net()
                self.optimizer = torch.optim.AdamW(self.model.parameters())  # guilty
                self.model = FSDP(self.model, device_id=torch.device("cpu"))
        trainer = Trainer()
        fit(trainer.model, trainer.optimizer)
        """,
    ),
    "a part is sharded after the optimizer was built": (
        "optimizer-before-sharding",
        "2 of 6",
        """
        model = Net()
        fully_shard(model.head, mesh=mesh())
        fully_shard(model.embed, mesh=mesh())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # guilty
        fully_shard(model.body, mesh=mesh())
        fit(model, optimizer)
        """,
    ),
    "a part was not given to fully_shard": (
        "gradients-exchanged-in-part",
        "model.head.weight",
        """
        model = Net()
        for part in (model.embed, model.body):
            fully_shard(part, mesh=mesh())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # guilty
        fit(model, optimizer)
        """,
    ),
    "no sampler under fully_shard": (
        "no-distributed-sampler",
        "all 64 samples",
        """
        model = sharded()
        optimizer = sgd(model)
        loader = DataLoader(numbers(), batch_size=8, shuffle=True)  # guilty
        for epoch in range(2):
            for inputs, targets in loader:
                step(model, optimizer, inputs, targets)
        """,
    ),
    "set_epoch is forgotten under FullyShardedDataParallel": (
        "set-epoch-not-called",
        "never",
        """
        model = FSDP(Net(), device_id=torch.device("cpu"))
        optimizer = sgd(model)
        loader = split()
        for epoch in range(4):  # guilty
            for inputs, targets in loader:
                step(model, optimizer, inputs, targets)
        """,
    ),
    "shards are clipped by torch": (
        "shards-clipped-by-torch",
        "different factors",
        """
        model = FSDP(Net(), device_id=torch.device("cpu"), use_orig_params=True)
        optimizer = sgd(model)
        for _ in range(3):
            optimizer.zero_grad()
            (50 * model(torch.randn(8, 8))).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)  # guilty
            optimizer.step()
        """,
    ),
    "clipped before the scaler has unscaled": (
        "clipped-before-unscaling",
        "65536 times too large",
        """
        model = DDP(Net())
        optimizer = sgd(model)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(8, 8)).square().mean()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # guilty
            scaler.step(optimizer)
            scaler.update()
        """,
    ),
    "a rank gathers the shards alone": (
        "rank0-only-collective",
        "called get_model_state_dict(",
        """
        model = sharded()
        optimizer = sgd(model)
        def save():
            if rank != 0:
                return
            whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
            get_model_state_dict(model, options=whole)  # guilty
        for epoch in range(3):
            fit(model, optimizer, 2)
            save()
        """,
    ),
    "an average of fully_shard's parts is saved by one rank": (
        "shards-of-one-rank-saved",
        "a copy of a sharded model",
        """
        model = sharded()
        average = {name: each.to_local().detach().clone() for name, each in model.named_parameters()}
        fit(model, sgd(model))
        if rank == 0:
            torch.save({"ema": average}, "average.pt")  # guilty
        """,
    ),
    "an average of FullyShardedDataParallel's parts is saved by one rank": (
        "shards-of-one-rank-saved",
        "a copy of a sharded model",
        """
        model = FSDP(Net(), device_id=torch.device("cpu"), use_orig_params=True)
        average = {name: each.detach().clone() for name, each in model.named_parameters()}
        fit(model, sgd(model))
        if rank == 0:
            torch.save(average, "average.pt")  # guilty
        """,
    ),
    "each rank has a folder of its own for a distributed checkpoint": (
        "checkpoint-folders-differ",
        "a folder of its own",
        """
        import torch.distributed.checkpoint as dcp
        model = sharded()
        fit(model, sgd(model))
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"{sys.path[0]}/checkpoint{rank}")  # guilty
        """,
    ),
    "the state of ZeroRedundancyOptimizer is loaded by one rank": (
        "optimizer-states-differ",
        "that of rank 1 begins anew",
        """
        model = DDP(Net())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
        fit(model, optimizer)
        optimizer.consolidate_state_dict(to=0)
        saved = optimizer.state_dict() if rank == 0 else None
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
        if rank == 0:
            optimizer.load_state_dict(saved)  # guilty
        fit(model, optimizer)
        """,
    ),
    "a trained part is left out of FullyShardedDataParallel": (
        "gradients-exchanged-in-part",
        "2 parameters are not exchanged",
        """
        model = Net()
        model = FSDP(model, device_id=torch.device("cpu"), ignored_modules=[model.head])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # guilty
        fit(model, optimizer)
        """,
    ),
    "the parts are below the limit of torch's clipping, and the whole is above it": (
        "shards-clipped-by-torch",
        "none clips",
        """
        model = FSDP(Net(), device_id=torch.device("cpu"))
        optimizer = sgd(model)
        torch.manual_seed(rank)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 8)).square().mean().backward()
            norms = torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None])
            limit = norms.norm().reshape(1)
            dist.all_reduce(limit, op=dist.ReduceOp.MAX)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.01 * limit.item())  # guilty
            optimizer.step()
        """,
    ),
    "the whole is sharded before its parts": (
        "parent-sharded-before-children",
        "after Net",
        """
        model = fully_shard(Net(), mesh=mesh())
        with contextlib.suppress(Exception):
            fully_shard(model.head, mesh=mesh())  # guilty
        """,
    ),
    "the state of fully_shard's optimizer is saved by one rank": (
        "shards-of-one-rank-saved",
        "the state of an optimizer",
        """
        model = sharded()
        optimizer = torch.optim.AdamW(model.parameters())
        fit(model, optimizer)
        if rank == 0:
            torch.save({"optimizer": optimizer.state_dict(), "step": 4}, "optimizer.pt")  # guilty
        """,
    ),
    "the state of FullyShardedDataParallel's optimizer is saved by one rank": (
        "shards-of-one-rank-saved",
        "the state of an optimizer",
        """
        model = FSDP(Net(), device_id=torch.device("cpu"))
        optimizer = torch.optim.AdamW(model.parameters())
        fit(model, optimizer)
        if rank == 0:
            torch.save({"optimizer": optimizer.state_dict()}, "optimizer.pt")  # guilty
        """,
    ),
}

HEALTHY = {
    "an average of DTensors is gathered and saved": """
        model = sharded()
        average = {name: each.detach().clone() for name, each in model.named_parameters()}
        fit(model, sgd(model))
        whole = {name: each.full_tensor() for name, each in average.items()}
        if rank == 0:
            torch.save({"ema": whole}, "average.pt")
        """,
    "FullyShardedDataParallel's optimizer is gathered and saved": """
        model = FSDP(Net(), device_id=torch.device("cpu"), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters())
        fit(model, optimizer)
        state = FSDP.optim_state_dict(model, optimizer)
        with FSDP.summon_full_params(model, writeback=False):
            average = {name: each.detach().clone() for name, each in model.named_parameters()}
        if rank == 0:
            torch.save({"optimizer": state, "ema": average}, "optimizer.pt")
        """,
    "fully_shard, clipped and saved whole": """
        model = sharded()
        optimizer = torch.optim.AdamW(model.parameters())
        loader = split()
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            for inputs, targets in loader:
                optimizer.zero_grad()
                nn.functional.mse_loss(model(inputs), targets).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if rank == 0:
            torch.save(state, os.path.join(os.path.dirname(__file__), "model.pt"))
        """,
    "FullyShardedDataParallel keeps the parameters of an optimizer that was built before": """
        model = Net()
        optimizer = sgd(model)
        fit(FSDP(model, device_id=torch.device("cpu"), use_orig_params=True), optimizer)
        """,
    "an optimizer that is given the shards later": """
        model = Net()
        optimizer = sgd(model)
        sharded(model)
        optimizer.param_groups[0]["params"] = list(model.parameters())
        fit(model, optimizer)
        """,
    "a part that fully_shard ignores is reduced by hand": """
        model = Net()
        fully_shard(model, mesh=mesh(), ignored_params=set(model.head.parameters()))
        optimizer = sgd(model)
        torch.manual_seed(rank)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 8)).square().mean().backward()
            for parameter in model.head.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
        """,
    "shards below the limit are clipped by torch": """
        model = FSDP(Net(), device_id=torch.device("cpu"))
        optimizer = sgd(model)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 8)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
            optimizer.step()
        """,
    "the limit of clipping is scaled": """
        model = DDP(Net())
        optimizer = sgd(model)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(8, 8)).square().mean()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5 * scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
        """,
    "both branches gather": """
        model = sharded()
        fit(model, sgd(model))
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        if rank == 0:
            print(len(get_model_state_dict(model, options=whole)))
        else:
            get_model_state_dict(model, options=whole)
        """,
    "the state of ZeroRedundancyOptimizer is loaded by all ranks": """
        model = DDP(Net())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
        fit(model, optimizer)
        optimizer.consolidate_state_dict(to=0)
        saved = [optimizer.state_dict() if rank == 0 else None]
        dist.broadcast_object_list(saved)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
        optimizer.load_state_dict(saved[0])
        fit(model, optimizer)
        """,
    "ZeroRedundancyOptimizer and Join": """
        model = DDP(Net())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
        with Join([model, optimizer]):
            fit(model, optimizer, 3 + rank)
        optimizer.consolidate_state_dict(to=0)
        if rank == 0:
            print(len(optimizer.state_dict()))
        """,
}


AT_NIGHT = {
    "the optimizer before FullyShardedDataParallel, in a class",
    "set_epoch is forgotten under FullyShardedDataParallel",
    "shards are clipped by torch",
    "clipped before the scaler has unscaled",
    "FullyShardedDataParallel keeps the parameters of an optimizer that was built before",
    "a part that fully_shard ignores is reduced by hand",
    "shards below the limit are clipped by torch",
    "the limit of clipping is scaled",
    "ZeroRedundancyOptimizer and Join",
}
"""What is like another one here, or like a fixture."""


def cases(those: dict[str, Any]) -> list[Any]:
    """Return trainings by name, those marked that are run at night."""
    marks = {name: [pytest.mark.nightly] if name in AT_NIGHT else [] for name in those}
    return [pytest.param(each, id=name, marks=marks[name]) for name, each in those.items()]


@pytest.mark.parametrize("fault", cases(FAULTS))
def test_the_fault_is_found(fault: tuple[str, str, str], tmp_path: Path, jobs: Jobs) -> None:
    """The check that knows it names it first, at the line that the user is to change."""
    slug, words, script = fault
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + END)

    assert_only(watched(path, CHECKS, jobs), slug, words, path)


@pytest.mark.parametrize("script", cases(HEALTHY))
def test_nothing_is_said_of_a_healthy_training(script: str, tmp_path: Path, jobs: Jobs) -> None:
    """What looks like one of the faults and is none gets no finding."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + END)

    assert [each.finding.message for each in watched(path, CHECKS, jobs)] == []


BY_INIT = 'dist.init_process_group("gloo")'
BY_MESH = 'init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))'
UNSEEN = BY_INIT.replace("(", ".__wrapped__(")


@pytest.mark.parametrize("made", [BY_MESH, UNSEEN])
def test_a_group_that_something_else_has_made_is_one(made: str, tmp_path: Path, jobs: Jobs) -> None:
    """A device mesh makes the default group too; and what makes it where nothing is watched is seen in a step."""
    path = tmp_path / "train.py"
    path.write_text(HEAD.replace(BY_INIT, made) + "\nmodel = sharded()\nfit(model, sgd(model), 10)" + END)

    assert [each.finding.message for each in watched(path, CHECKS, jobs)] == []


def test_faults_are_found_in_a_group_that_a_device_mesh_has_made(tmp_path: Path, jobs: Jobs) -> None:
    """Its ranks are watched as others are."""
    path = tmp_path / "train.py"
    path.write_text(HEAD.replace(BY_INIT, BY_MESH) + "\nmodel = Net()\nfit(model, sgd(model), 10)" + END)

    assert "gradients-not-exchanged" in {each.check.slug for each in watched(path, CHECKS, jobs)}


EVALUATES_ALONE = """
model = sharded()
def evaluate():
    with torch.no_grad():
        return model(torch.randn(8, 8)).mean()  # guilty
fit(model, sgd(model))
if rank == 0:
    print(evaluate())
dist.barrier()
"""


def test_a_condition_around_the_caller_is_found_in_a_hang(tmp_path: Path, jobs: Jobs, checks: dict[str, Check]) -> None:
    """A rank that evaluates alone waits in a function whose lines have no condition: that is around its call."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + EVALUATES_ALONE + END)

    found = watched(path, CHECKS, jobs, until=checks["rank0-only-collective"])

    assert [each.check.slug for each in found] == ["rank0-only-collective"]
    assert "under `if rank == 0`" in found[0].finding.message


def held(rank: int, sizes: tuple[int, ...], shards: int = 0) -> ParametersHeld:
    """Return what an optimizer of a rank holds."""
    names = tuple(f"weight{at}" for at in range(len(sizes)))
    nobody, alike = (-1,) * len(sizes), (False,) * len(sizes)
    return ParametersHeld(
        pid=rank, time=1, rank=rank, optimizer=0, kind="SGD", names=names, sizes=sizes, managed=nobody, constant=alike,
        shards=shards,
    )  # fmt: skip


def fingerprinted(rank: int, value: float, count: int) -> StepFingerprinted:
    """Return a step in which all gradients and weights have one fingerprint."""
    prints = ((value, value),) * count
    return StepFingerprinted(
        pid=rank, time=2, rank=rank, optimizer=0, number=1, local=prints, given=prints, values=prints,
        added=(1,) * count, exchanges=(), sent=(), options=(), evaluating=(), subgroups=False, hooks=(),
    )  # fmt: skip


def weights(rank: int, value: float) -> WeightsFingerprinted:
    """Return what a rank tells when its first backward begins, without an optimizer."""
    return WeightsFingerprinted(
        pid=rank, time=2, rank=rank, number=1, names=("weight",), sizes=(4,), managed=(-1,), values=((value, value),),
        sent=(), forwards=0, hooks=False, subgroups=False, clock=0,
    )  # fmt: skip


def joined() -> list[Joined]:
    """Return two ranks of one process group."""
    return [Joined(pid=rank, time=1, rank=rank, world_size=2, backend="gloo") for rank in (0, 1)]


def said(*events: Event) -> str:
    """Return the line at the end of a run with these events."""
    training = Training()
    for each in events:
        training.add(each)
    return compared_text([training])


def test_the_last_line_of_a_run_is_true_of_shards() -> None:
    """Shards are told apart from what is compared, and an optimizer that holds each rank's own part is not compared."""
    shards = said(*(held(rank, (), 10) for rank in (0, 1)), *(fingerprinted(rank, rank, 0) for rank in (0, 1)))
    both = said(*(held(rank, (4,), 10) for rank in (0, 1)), *(fingerprinted(rank, 3.0, 1) for rank in (0, 1)))
    parts = said(*(held(rank, (4 + rank,)) for rank in (0, 1)), *(fingerprinted(rank, rank, 1) for rank in (0, 1)))

    assert shards == "Compared 1 step, 10 parameters sharded, of which each rank has its own part."
    assert both.startswith("Compared 1 step, 1 parameter: gradients equal, weights equal, and 10 parameters sharded")
    assert parts == "No step could be compared between ranks."


def test_the_last_line_of_a_run_says_that_no_optimizer_was_seen() -> None:
    """Weights are compared there when backwards begin; without any, the line does not pretend that something was."""
    ways = {value: [weights(0, 3.0), weights(1, value)] for value in (3.0, 4.0)}

    assert said() == "No optimizer was seen to step, and nothing was compared between ranks."
    assert said(*joined(), *ways[3.0]).endswith(
        "compared weights before 1 backward equal; gradients were not compared."
    )
    assert "weights before 1 backward different in 1;" in said(*joined(), *ways[4.0])


def test_the_last_line_of_a_run_says_that_each_rank_holds_another_part() -> None:
    """Parts of the same size are not compared as if they were the same parameters."""
    parts = [replace(held(rank, (4,)), names=(f"layer{rank}.weight",)) for rank in (0, 1)]
    steps = [fingerprinted(rank, float(rank), 1) for rank in (0, 1)]
    print_ = ((1.0, 1.0),)
    others = [
        OthersFingerprinted(
            pid=rank, time=2, rank=rank, optimizer=0, number=1, names=(f"layer{1 - rank}.weight",), sizes=(4,),
            local=print_, values=print_,
        )
        for rank in (0, 1)
    ]  # fmt: skip

    assert said(*parts, *steps) == "No step could be compared between ranks."
    assert said(*parts, *steps, *others) == "Compared 1 step: each rank's optimizer holds another part of the model."


def test_the_last_line_of_a_run_says_where_each_rank_trains_alone() -> None:
    """Where gradients differ and nothing was sent, nobody reads a mere "different" below "nothing wrong was found"."""
    alone = [fingerprinted(rank, 1.0 + rank, 1) for rank in (0, 1)]
    alike = [fingerprinted(rank, 1.0, 1) for rank in (0, 1)]
    sent = [replace(each, sent=(("all_reduce", 1, 4),)) for each in alone]
    both = [held(rank, (4,)) for rank in (0, 1)]

    wrapped = [replace(each, managed=(0,)) for each in both]

    assert "each trained a model of its own" in said(*both, *alone)
    assert all("its own" not in said(*both, *steps) for steps in (alike, sent))
    assert "its own" not in said(*wrapped, *alone), "DDP is there, and a check says what became of it"


def test_how_far_ranks_went_apart_is_in_the_report() -> None:
    """For each compared step: a norm of the gradients by rank, and which rank's weights lie away from the others'."""
    training = Training()
    for rank, value in enumerate((1.0, 1.0, 4.0)):
        training.add(held(rank, (4,)))
        training.add(fingerprinted(rank, value, 1))
    (told,) = norms_data([training])
    assert told["steps"] == [1]
    assert told["equal"] == []
    assert [each["gradients"] for each in told["ranks"].values()] == [[1.0], [1.0], [4.0]]
    assert [each["weights"] for each in told["ranks"].values()] == [[0.5], [0.5], [1.0]]


def test_a_module_is_waited_for_and_imported_by_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is called with a module once the user has imported it, or at once; not after undo."""
    for name in ("first_of_two", "second_of_two"):
        (tmp_path / f"{name}.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    told: list[str] = []
    finders = list(sys.meta_path)

    names = ("first_of_two", "second_of_two")
    awaited = [when_imported(name, lambda module: told.append(module.__name__)) for name in names]
    assert not told
    assert not set(names) & set(sys.modules)
    first = importlib.import_module("first_of_two")
    assert (told, first.VALUE) == (["first_of_two"], 1)
    when_imported("first_of_two", lambda module: told.append(module.__name__))
    for each in awaited:
        each.undo()
    importlib.import_module("second_of_two")

    assert told == ["first_of_two", "first_of_two"]
    assert sys.meta_path == finders


@pytest.mark.parametrize(("written", "found"), [(400.0, ["stale-rendezvous-store"]), (500.5, []), (0.0, [])])
def test_a_file_that_an_earlier_run_has_left_is_named(written: float, found: list[str]) -> None:
    """The file of a store is an earlier run's where it was written before the first rank of this one began."""
    began = [Started(pid=rank, time=500.0 + rank, rank=rank, program="train.py", launch="one") for rank in (0, 1)]
    joining = [
        Joining(
            pid=rank, time=510.0, rank=rank, world_size=2, backend="gloo", address="file:///tmp/store",
            store_written=written if rank == 0 else 509.0,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    dispatcher = Dispatcher(CHECKS)

    said = [each for event in (*began, *joining) for each in dispatcher.see(event)]

    assert [each.check.slug for each in said] == found
