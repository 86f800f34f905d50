"""What is said of an error that no check knows by the part of a package that raised it."""

from __future__ import annotations

import pytest
from helpers import answered

from ddpdoctor.logs.unknown.next_steps import doing, next_step
from ddpdoctor.report.answer.data import as_markdown
from ddpdoctor.report.answer.text import answer_text

OWN = '  File "/w/train.py", line 9, in <module>\n    step()\n'
ENDED = "Traceback (most recent call last):\n{own}{below}OddError: no check knows it\n"


def raised(*files: str, own: str = OWN, prefix: str = "/v/lib/python3.11/site-packages/") -> str:
    """Return a log of an error that these files of packages raised, the innermost last."""
    below = "".join(f'  File "{prefix}{file}", line 20, in f\n    g()\n' for file in files)
    return ENDED.format(own=own, below=below)


def told(log: str) -> tuple[str, str]:
    """Return what was being done, and the command that comes next."""
    unknown = answered(log).unknown
    assert unknown is not None
    return doing(unknown), next_step(unknown).command


@pytest.mark.parametrize(
    ("file", "was_doing", "command"),
    [
        ("torch/distributed/rendezvous.py", "meeting at MASTER_ADDR", "ddpdoctor check -- torchrun ..."),
        ("torch/distributed/device_mesh.py", "mesh of parallel sizes", "mesh_shape, mesh_dim_names"),
        ("torch/distributed/fsdp/_state_dict_utils.py", "put together from the shards", "ddpdoctor inspect FILE"),
        ("torch/distributed/fsdp/_flat_param.py", "taking over the parameters", "p.requires_grad"),
        ("torch/distributed/fsdp/_runtime_utils.py", "around its forward", "ddpdoctor run -- torchrun ..."),
        ("torch/distributed/checkpoint/planner.py", "sharded checkpoint", "ddpdoctor inspect FOLDER"),
        ("torch/distributed/tensor/_dispatch.py", "DTensor", "placements"),
        ("torch/distributed/distributed_c10d.py", "a collective was called", "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun"),
        ("torch/nn/parallel/distributed.py", "DistributedDataParallel", "ddpdoctor check --model"),
        ("torch/nn/parallel/parallel_apply.py", "DataParallel was dividing", "CUDA_VISIBLE_DEVICES=0 python"),
        ("torch/utils/checkpoint.py", "activation checkpointing", "gradient_checkpointing_disable"),
        ("torch/autograd/graph.py", "the backward was computing", "set_detect_anomaly(True)"),
        ("torch/optim/adamw.py", "taking its step", "optimizer.param_groups"),
        ("torch/_dynamo/output_graph.py", "torch.compile was", "TORCHDYNAMO_DISABLE=1 torchrun ..."),
        ("torch/utils/data/dataloader.py", "making a batch", "num_workers=0"),
        ("torch/serialization.py", "a file of weights", "ddpdoctor inspect FILE"),
        ("deepspeed/runtime/zero/stage3.py", "ZeRO was", '"zero_optimization": {"stage": 2}'),
        ("ray/_private/worker.py", "Ray was handing", "ray status"),
        ("ray/dashboard/modules/job/sdk.py", "to the head of a Ray cluster", "dashboard*"),
        ("datasets/arrow_reader.py", "from the cache on disk", "HF_DATASETS_CACHE=$(mktemp -d) torchrun ..."),
    ],
)
def test_a_part_says_what_it_was_doing_and_what_shows_more(file: str, was_doing: str, command: str) -> None:
    """By the innermost file that is a known part, also where one of no known part lies below it."""
    for files in ((file,), (file, "torch/nn/modules/module.py")):
        said, step = told(raised(*files))

        assert was_doing in said
        assert command in step


@pytest.mark.parametrize(
    "log",
    [
        raised("torchvision/datasets/mnist.py"),
        raised("somebody/torch/optim/adamw.py"),
        raised("torch/distributed/run.py", own="") + raised(),
        raised(own='  File "/v/lib/python3.11/site-packages/torch/distributed/rendezvous.py", line 3, in f\n' + OWN),
    ],
    ids=["another datasets", "another torch", "the launcher", "above the user's own code"],
)
def test_other_files_of_such_names_are_no_part(log: str) -> None:
    """What lies above the user's own code called it, and did not raise it."""
    assert told(log)[0] == ""


def test_paths_of_windows_and_of_a_checkout_are_read() -> None:
    """Megatron runs from its checkout, and counts as the user's own code."""
    windows = raised(r"torch\distributed\rendezvous.py", prefix="C:\\env\\Lib\\site-packages\\")
    megatron = raised("megatron/core/dist_checkpointing/validation.py", prefix="/srv/Megatron-LM/")

    assert "MASTER_ADDR" in told(windows)[0]
    assert "Megatron was saving or loading" in told(megatron)[0]


def test_an_assertion_of_torch_itself_is_called_one() -> None:
    """It has a meaning of its own, whichever part made it, and also without a traceback."""
    said = 'RuntimeError: !state_.expired() INTERNAL ASSERT FAILED at "../torch/csrc/x.cpp":2, please report a bug'
    log = raised("torch/autograd/graph.py").replace("OddError: no check knows it", said)

    assert "a state that it takes to be impossible" in told(log)[0]
    assert "collect_env" in told(log)[1]


def test_a_package_that_calls_torch_is_named_with_it() -> None:
    """The user's own code is not in the traceback, or called the package alone."""
    log = raised("transformers/modeling_utils.py", "torch/nn/modules/module.py", "torch/nn/functional.py")

    assert "pip show torch transformers" in told(log)[1]
    assert "pip show torch" not in told(raised("torch/nn/functional.py"))[1]


def test_the_ranks_that_raised_it_come_before_the_part() -> None:
    """An error of one rank among several is one of what differs there; what was being done is told all the same."""
    log = "".join(f"[rank1]: {line}\n" for line in raised("torch/optim/adamw.py").splitlines())
    said, step = told(log + "[rank0]: epoch 1\n")

    assert "taking its step" in said
    assert step.startswith("ddpdoctor run -- torchrun ...")
    assert told(log)[1].startswith("print(")


def test_the_number_of_an_entry_in_torchruns_summary_is_no_rank() -> None:
    """`[0]:` is the first entry, whatever its rank."""
    log = "".join(f"[rank3]: {line}\n" for line in raised().splitlines()) + (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-02-11_10:31:08\n"
        "  rank      : 3 (local_rank: 3)\n"
        "  exitcode  : 1 (pid: 4711)\n"
    )

    assert "that the log has lines of" not in answer_text(answered(log))


def test_all_reports_tell_it() -> None:
    """As text and as Markdown."""
    answer = answered(raised("torch/optim/adamw.py"))

    assert "  while     the optimizer was taking its step\n" in answer_text(answer)
    assert "While the optimizer was taking its step." in as_markdown(answer)


def test_a_package_is_asked_where_the_traceback_has_nothing_of_the_users_own() -> None:
    """Its assertion is not taken for one of the user's code, whose line a debugger would stop at."""
    log = raised("torch/distributed/fsdp/_optim_utils.py", own="").replace("OddError: no", "AssertionError: no")

    assert "print([n for n, _ in model.named_parameters()]" in told(log)[1]


def test_the_output_is_kept_as_the_launcher_keeps_it() -> None:
    """Options of torchrun do it; that of other launchers goes into a file."""
    assert "torchrun --log-dir=logs" in told("torchrun train.py\nOddError: no check knows it\n")[1]
    assert "ddpdoctor explain all.log" in told("ray.exceptions.RaySystemError: no check knows it\n")[1]
