"""Weights that are no numbers any more: whose loss was the first, and what only looks so."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
from helpers import CHECKS, TESTS

from ddpdoctor.selftest.trainings import watched
from ddpdoctor.watch.figures.compared import Step

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "model_head.txt").read_text(encoding="utf-8")
END = "\ndist.destroy_process_group()\n"
SLUG = "weights-not-finite"
BROKEN = {
    "the loss of one rank, in a step that is compared": (
        "the loss of rank 1 was the first, in step 3",
        """
        model = DDP(net())
        optimizer = sgd(model)
        for number in range(1, 8):
            loss = loss_of(model) / (0.0 if rank == 1 and number == 3 else 1.0)
            optimizer.zero_grad()
            loss.backward()  # guilty
            optimizer.step()
        """,
    ),
    "the loss of one rank, in a step that is not compared": (
        "the loss of rank 0 was the first, in step 13",
        """
        model = DDP(net())
        optimizer = sgd(model)
        for number in range(1, 22):
            inputs, targets = batch()
            if rank == 0 and number == 13:
                inputs[2] = float("nan")
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()  # guilty
            optimizer.step()
        """,
    ),
    "all ranks diverge": (
        "the loss was no number in step",
        """
        model = DDP(net())
        optimizer = sgd(model, lr=1e8)
        for number in range(1, 22):
            optimizer.zero_grad()
            loss_of(model).backward()  # guilty
            optimizer.step()
        """,
    ),
    "the gradient of a finite loss": (
        "it began there, or with a gradient of the step before",
        """
        model = DDP(net())
        optimizer = sgd(model)
        for number in range(1, 12):
            outputs = model(torch.zeros(8, 8) if number == 5 else batch()[0])
            distance = (outputs - outputs.detach()).norm() if number == 5 else outputs.norm()
            optimizer.zero_grad()
            distance.sqrt().backward()  # guilty
            optimizer.step()
        """,
    ),
    "by hand, by a function of torch": (
        "the loss of rank 1 was the first, in step 4",
        """
        model = net()
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)
        optimizer = sgd(model)
        for number in range(1, 8):
            loss = loss_of(model)
            loss = loss.log() * 0 if rank == 1 and number == 4 else loss
            loss = loss / 0 if rank == 1 and number == 4 else loss
            optimizer.zero_grad()
            torch.autograd.backward(loss)  # guilty
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
        """,
    ),
}
SHARDED = """
from torch.distributed.fsdp import fully_shard
torch.manual_seed(0)
model = net()
fully_shard(model)
optimizer = sgd(model)
torch.manual_seed(rank)  # samples of its own
for number in range(1, 12):
    inputs, targets = batch()
    if rank == 1 and number in LOST:
        inputs[0] = float("nan")
    loss = nn.functional.mse_loss(model(inputs), targets)
    if KEPT or loss.isfinite():
        optimizer.zero_grad()
    loss.backward()  # guilty
    if KEPT:
        for parameter in model.parameters():
            parameter.grad.nan_to_num_(0.0)
    optimizer.step()
"""
HEALTHY = {
    "a step whose gradients are infinite is left out, on all ranks": """
        model = DDP(net())
        optimizer = sgd(model)
        for number in range(1, 22):
            optimizer.zero_grad()
            loss = loss_of(model)
            (loss / 0 if number == 3 else loss).backward()
            if all(parameter.grad.isfinite().all() for parameter in model.parameters()):
                optimizer.step()
    """,
    "gradients that are not finite are set to zero": """
        model = DDP(net())
        optimizer = sgd(model)
        for number in range(1, 22):
            optimizer.zero_grad()
            loss = loss_of(model)
            (loss / 0 if rank == 1 and number == 7 else loss).backward()
            for parameter in model.parameters():
                torch.nan_to_num_(parameter.grad, 0.0, 0.0, 0.0)
            optimizer.step()
    """,
    "a mask that is a parameter, infinite from the start": """
        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = net()
                self.mask = nn.Parameter(torch.tensor([0.0, -float("inf"), 0.0, 0.0]), requires_grad=False)
            def forward(self, inputs):
                return (self.layer(inputs) + self.mask).softmax(1)
        model = DDP(Masked())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        fit(model, optimizer, 21)
    """,
}


@pytest.mark.parametrize("fault", BROKEN.values(), ids=BROKEN)
def test_it_is_said_when_and_on_which_rank_it_began(fault: tuple[str, str], tmp_path: Path, jobs: Jobs) -> None:
    """One finding has the step, the rank where one was the first, and the line that asked for the gradients."""
    words, script = fault
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + END)
    guilty = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "# guilty" in text)

    found = watched(path, CHECKS, jobs)

    assert [each.check.slug for each in found] == [SLUG], [each.finding.message for each in found]
    assert words in found[0].finding.message
    assert (found[0].finding.place.file, found[0].finding.place.line) == (str(path), guilty)


@pytest.mark.parametrize("script", HEALTHY.values(), ids=HEALTHY)
def test_weights_that_stay_numbers_are_silent(script: str, tmp_path: Path, jobs: Jobs) -> None:
    """Gradients may be infinite, and parameters that were so from the start, without a word."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + END)

    assert [each.finding.message for each in watched(path, CHECKS, jobs)] == []


@pytest.mark.parametrize(
    ("lost", "kept", "words"),
    [
        pytest.param("(4,)", "False", "the loss of rank 1 was the first, in step 4", id="for good"),
        pytest.param("(2, 3, 5)", "True", "", id="of some steps, whose gradients are left out"),
        pytest.param("()", "False", "", id="never"),
    ],
)
def test_of_sharded_parameters_losses_tell(lost: str, kept: str, words: str, tmp_path: Path, jobs: Jobs) -> None:
    """Of parameters of which each rank has a part the losses of two compared steps are what is known."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + f"LOST, KEPT = {lost}, {kept}\n" + SHARDED + END)

    found = watched(path, CHECKS, jobs)

    assert [each.check.slug for each in found] == [SLUG] * bool(words), [each.finding.message for each in found]
    assert all(words in each.finding.message for each in found)


class _Told:
    """A step of one rank, as far as it is asked for here."""

    def __init__(self, *norms: float) -> None:
        """Have parameters with these norms."""
        self.values = tuple((norm, norm) for norm in norms)


@pytest.mark.parametrize(
    ("ranks", "equal", "finite"),
    [
        (((1.0, 2.0), (1.0, 2.0)), True, True),
        (((1.0, 2.0), (1.0, 2.5)), False, True),
        (((1.0, float("nan")), (1.0, float("nan"))), True, False),
        (((1.0, float("nan")), (1.0, 2.0)), False, False),
        (((1.0, float("inf")), (1.0, float("nan"))), True, False),
    ],
)
def test_what_is_not_finite_is_no_difference_between_ranks(
    ranks: tuple[tuple[float, ...], ...], equal: object, finite: object
) -> None:
    """Ranks that all have NaN are not told to have different weights; one that alone has it is."""
    told: tuple[Any, ...] = tuple(_Told(*norms) for norms in ranks)
    step = Step(told)

    assert (step.is_equal("values"), step.is_finite("values")) == (equal, finite)
