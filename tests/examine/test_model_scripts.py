"""The broken cases of the model checks really fail or go wrong; the healthy twins really train."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import FIXTURES

from ddpdoctor.jobs.outcome import Outcome, Raised, Returned

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

FAILING = {
    "attribute_of_wrapped_model": "object has no attribute 'encode'",
    "batchnorm_single_value": "Expected more than 1 value per channel when training",
    "expanded_buffers": "refers to a single memory location",
    "uninitialized_lazy_parameters": "Modules with uninitialized parameters can't be used",
    "mixed_devices": "must be on the same type of devices",
    "no_trainable_parameters": "doesn't have any parameter that requires a gradient",
    "parameters_differ": "appears not to match sizes",
    "parameter_ready_twice": "Expected to mark a variable ready only once",
    "step_fails_without_ddp": "mat1 and mat2 shapes cannot be multiplied",
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
    "gradients_differ_from_single_process",
    "gradients_not_averaged",
    "batchnorm_batch_too_small",
    "unregistered_parameters",
)
WATCHED = ("parameters_differ", "unused_parameters", "unused_parameters_differ")
ALONE = ("batch_smaller_than_gpus", "dataparallel_scalar_loss")  # DataParallel: one process


def run(jobs: Jobs, slug: str, case: str, ranks: int = 2) -> tuple[Outcome, ...]:
    """Run a fixture as torchrun would."""
    return jobs.run_script(FIXTURES / slug / f"{case}.py", ranks=ranks, environ={"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize("slug", FAILING)
def test_a_patient_fails_with_the_message_of_its_page(jobs: Jobs, slug: str) -> None:
    """At least one rank raises it."""
    outcomes = run(jobs, slug, "broken")

    assert any(isinstance(outcome, Raised) and FAILING[slug] in outcome.message for outcome in outcomes), outcomes


@pytest.mark.parametrize("slug", [slug for slug in (*FAILING, *SILENT) if slug not in WATCHED])
def test_a_control_trains(jobs: Jobs, slug: str) -> None:
    """Every rank takes all steps, and the loss is printed; those that the self-test watches train there."""
    outcomes = run(jobs, slug, "healthy")

    assert all(isinstance(outcome, Returned) for outcome in outcomes), outcomes
    assert "step 4: loss" in outcomes[0].output


@pytest.mark.parametrize("slug", SILENT)
def test_a_silent_patient_says_nothing(jobs: Jobs, slug: str) -> None:
    """What goes wrong without an error needs somebody who looks."""
    outcomes = run(jobs, slug, "broken")

    assert all(isinstance(outcome, Returned) for outcome in outcomes), outcomes


@pytest.mark.parametrize("slug", ALONE)
@pytest.mark.parametrize("case", ["broken", "healthy"])
def test_a_script_for_data_parallel_runs_without_gpus(jobs: Jobs, slug: str, case: str) -> None:
    """Without GPUs DataParallel calls the module, and nothing can go wrong yet."""
    (outcome,) = run(jobs, slug, case, ranks=1)

    assert isinstance(outcome, Returned), outcome


@pytest.mark.parametrize(("case", "equal"), [("broken", False), ("healthy", True)])
def test_ranks_train_different_copies_of_unregistered_layers(jobs: Jobs, case: str, equal: bool) -> None:  # noqa: FBT001
    """The weights in the plain list drift apart; those in the ModuleList do not."""
    outcomes = run(jobs, "unregistered_parameters", case)
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
    jobs: Jobs,
    tmp_path: Path,
    forwards: str,
    same: bool,  # noqa: FBT001
) -> None:
    """The broken case's model and the healthy twin's, which uses a copy, agree unless there is a second forward."""
    script = tmp_path / "two_forwards.py"
    script.write_text(TWO_FORWARDS)
    norms = [
        float(
            re.findall(
                r"norm ([\d.e-]+)",
                jobs.run_script(script, str(FIXTURES / "buffers_overwritten" / f"{case}.py"), forwards)[0].output,
            )[0]
        )
        for case in ("broken", "healthy")
    ]

    assert (norms[0] == pytest.approx(norms[1], rel=1e-6)) is same
