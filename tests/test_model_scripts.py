"""The patients of the model checks are training scripts that really fail or go wrong; the controls really train."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpdoctor.probe.jobs import Jobs
from ddpdoctor.probe.outcome import Outcome, Raised, Returned

FIXTURES = Path(__file__).parents[1] / "fixtures"
FAILING = {
    "attributes_behind_wrapper": "object has no attribute 'encode'",
    "batchnorm_of_one": "Expected more than 1 value per channel when training",
    "expanded_buffers": "refers to a single memory location",
    "lazy_parameters": "Modules with uninitialized parameters can't be used",
    "mixed_devices": "must be on the same type of devices",
    "no_trainable_parameters": "doesn't have any parameter that requires a gradient",
    "parameters_differ": "appears not to match sizes",
    "ready_twice": "Expected to mark a variable ready only once",
    "step_fails_alone": "mat1 and mat2 shapes cannot be multiplied",
    "step_fails_under_ddp": "No support for sparse tensors",
    "strides_differ": "appears not to match strides",
    "syncbn_on_cpu": "SyncBatchNorm",
    "unsupported_dtype": "Invalid scalar type",
    "unused_parameters": "Expected to have finished reduction in the prior iteration",
    "unused_parameters_differ": "Expected to have finished reduction in the prior iteration",
}
SILENT = (
    "already_wrapped",
    "buffers_overwritten",
    "gradient_parity",
    "gradients_not_averaged",
    "small_batchnorm_batch",
    "unregistered_parameters",
)
ALONE = ("batch_smaller_than_gpus", "dataparallel_scalar_output")  # DataParallel: one process


@pytest.fixture(scope="module")
def pool() -> Iterator[Jobs]:
    """Give a pool of two ranks."""
    with Jobs(2, os.environ) as jobs:
        yield jobs


def run(pool: Jobs, slug: str, case: str, ranks: int = 2) -> tuple[Outcome, ...]:
    """Run a fixture as torchrun would."""
    return pool.run_script(FIXTURES / slug / f"{case}.py", ranks=ranks, environ={"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize("slug", FAILING)
def test_a_patient_fails_with_the_message_of_its_page(pool: Jobs, slug: str) -> None:
    """At least one rank raises it."""
    outcomes = run(pool, slug, "patient")

    assert any(isinstance(outcome, Raised) and FAILING[slug] in outcome.message for outcome in outcomes), outcomes


@pytest.mark.parametrize("slug", [*FAILING, *SILENT])
def test_a_control_trains(pool: Jobs, slug: str) -> None:
    """Every rank takes all steps, and the loss is printed."""
    outcomes = run(pool, slug, "control")

    assert all(isinstance(outcome, Returned) for outcome in outcomes), outcomes
    assert "step 4: loss" in outcomes[0].output


@pytest.mark.parametrize("slug", SILENT)
def test_a_silent_patient_says_nothing(pool: Jobs, slug: str) -> None:
    """What goes wrong without an error needs somebody who looks."""
    outcomes = run(pool, slug, "patient")

    assert all(isinstance(outcome, Returned) for outcome in outcomes), outcomes


@pytest.mark.parametrize("slug", ALONE)
@pytest.mark.parametrize("case", ["patient", "control"])
def test_a_script_for_data_parallel_runs_without_gpus(pool: Jobs, slug: str, case: str) -> None:
    """Without GPUs DataParallel calls the module, and nothing can go wrong yet."""
    (outcome,) = run(pool, slug, case, ranks=1)

    assert isinstance(outcome, Returned), outcome


@pytest.mark.parametrize(("case", "equal"), [("patient", False), ("control", True)])
def test_ranks_train_different_copies_of_unregistered_layers(pool: Jobs, case: str, equal: bool) -> None:  # noqa: FBT001
    """The weights in the plain list drift apart; those in the ModuleList do not."""
    outcomes = run(pool, "unregistered_parameters", case)
    sums = {re.findall(r"layers sum to (-?[\d.]+)", outcome.output)[0] for outcome in outcomes}

    assert (len(sums) == 1) is equal, sums


TWO_FORWARDS = """
import runpy, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
build = runpy.run_path(sys.argv[1])["build_model"]
torch.manual_seed(0)
model = DistributedDataParallel(build())
torch.manual_seed(1 + dist.get_rank())
outputs = [model(torch.randn(8, 16)) for _ in range(int(sys.argv[2]))]
sum(output.square().mean() for output in outputs).backward()
print("norm", torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item())
"""


@pytest.mark.parametrize(("forwards", "same"), [("1", True), ("2", False)])
def test_an_overwritten_buffer_makes_the_gradient_wrong(
    pool: Jobs,
    tmp_path: Path,
    forwards: str,
    same: bool,  # noqa: FBT001
) -> None:
    """The patient's model and the control's, which uses a copy, agree unless there is a second forward."""
    script = tmp_path / "two_forwards.py"
    script.write_text(TWO_FORWARDS)
    norms = [
        float(
            re.findall(
                r"norm ([\d.e-]+)",
                pool.run_script(script, str(FIXTURES / "buffers_overwritten" / f"{case}.py"), forwards)[0].output,
            )[0]
        )
        for case in ("patient", "control")
    ]

    assert (norms[0] == pytest.approx(norms[1], rel=1e-6)) is same
