"""What scripts call the number of ranks, multiply by it, print with it and gather, as their source says."""

from __future__ import annotations

import ast
import importlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def of_checks(module: str) -> Any:
    """Return a module that checks share."""
    return importlib.import_module(f"ddpdoctor.checks.{module}")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("rank, size = dist.get_rank(), dist.get_world_size()", {"size"}),
        ("self.n = int(os.environ['WORLD_SIZE'])", {"n"}),
        ("count = float(torch.distributed.get_world_size())", {"count"}),
        ("size = len(dataset)", set()),
    ],
)
def test_the_number_of_ranks_is_known_by_the_name_that_a_file_gives_it(line: str, names: set[str]) -> None:
    """A sum that is divided by ``size`` is a mean, where the file says that size is the number of ranks."""
    assert of_checks("_evaluation.counts").ranks_in(ast.parse(line)) == names


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("print(f'rank {rank}: {loss}')", True),
        ("if rank == 0:\n    print(f'[rank{rank}] epoch {epoch}: {loss}')", False),
        ("print(f'epoch {epoch}: {loss}')", False),
        ("print(f'[rank {rank}] joined by {backend}, {len(data)} samples')", False),
        ("device = torch.device(f'cuda:{local_rank}')", False),
        ("print(f'[rank {rank}]', loss)", True),
        ("who = f'[rank {rank}]'\nprint(who, loss)", True),
        ("try:\n    train()\nexcept Exception as e:\n    print(f'rank {rank}: {e}')", False),
    ],
)
def test_a_line_of_rank_0_alone_does_not_tell_each_ranks_own(line: str, says: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The tutorial's ``[GPU{rank}] Epoch ...`` tells nobody of which rank a metric is."""
    script = tmp_path / "train.py"
    script.write_text(f"import torch.distributed as dist\nrank = dist.get_rank()\n{line}\n", encoding="utf-8")

    assert of_checks("_evaluation.metrics").says_rank(str(script)) is says


@pytest.mark.parametrize(
    ("call", "can"),
    [
        ("dist.all_reduce(load)", True),
        ("dist.gather(load, parts)", True),
        ("accelerator.gather(load)", True),
        ("scores.gather(-1, chosen)", False),
        ("zeros.scatter(1, chosen, values)", False),
        ("scores.gather(dim=1, index=chosen)", False),
        ("scores.mean()", False),
    ],
)
def test_what_picks_from_a_tensor_exchanges_nothing(call: str, can: bool) -> None:  # noqa: FBT001
    """A tensor's own gather and scatter bear the names of collectives."""
    parsed = ast.parse(call, mode="eval").body

    assert of_checks("model.local._communicating").exchanges(parsed) is can


@pytest.mark.parametrize(
    ("line", "scaled"),
    [("lr = base_lr * world_size", False), ("optimizer = SGD(p, lr=args.lr * world_size)", False),
     ("loss = loss * world_size", True), ("grad.mul_(dist.get_world_size())", True)],
)  # fmt: skip
def test_a_scaled_learning_rate_is_no_scaled_gradient(line: str, scaled: bool) -> None:  # noqa: FBT001
    """Whoever multiplies a loss by the ranks has undone DDP's mean; a learning rate says nothing of it."""
    assert of_checks("model.gathered._own_backwards")._multiplies_by_world(ast.parse(line)) is scaled


def test_a_sum_of_one_number_for_each_batch_is_a_mean_by_their_number() -> None:
    """Whatever a loader is called."""
    means = of_checks("data.evaluation._summed_means")
    loop = "for x in self.train_data:\n    running += step(x)\nmean = torch.tensor(running / len({over}))"
    divided = {over: ast.parse(loop.format(over=over)) for over in ("self.train_data", "self.everything")}
    said = {
        over: means._is_mean(next(each for each in ast.walk(tree) if isinstance(each, ast.BinOp)), tree)
        for over, tree in divided.items()
    }

    assert said == {"self.train_data": True, "self.everything": False}


def test_a_forward_is_not_told_to_go_on_with_the_samples_of_all(tmp_path: Path) -> None:
    """What a method only counts can come from all ranks; what it returns is of its own rank's samples."""
    summed_up = of_checks("model.local.statistics_of_one_rank")._summed_up
    methods = "class Codes:\n    def {name}(self, z):\n        self.sums += z.sum(0)\n{rest}"
    said = {}
    for name, rest in (("update", ""), ("forward", "        return z - self.sums\n")):
        (tmp_path / f"{name}.py").write_text(methods.format(name=name, rest=rest))
        said[name] = summed_up(str(tmp_path / f"{name}.py"), 3)

    assert "all_gather_object(parts, z)" in said["update"]
    assert "all_gather_object" not in said["forward"]
    assert "+dist.all_reduce(sums)" in said["forward"]
