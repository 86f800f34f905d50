# ruff: noqa: E501 - messages stand in one line, as they are printed
"""What ``explain`` says of a fault that others resemble: the words that tell them apart, and the fix that fits each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers import named

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding


def told(slug: str, log: str) -> Finding:
    """Return what a check says of a log."""
    return named(log)[slug].finding


def pasted(finding: Finding) -> str:
    """Return everything that a finding's fix says, to be read or pasted."""
    return f"{finding.fix.summary}\n{finding.fix.command}\n{finding.fix.diff}"


class TestTensors:
    """Tensors that are refused, by what they differ in."""

    GLOO = "RuntimeError: ProcessGroupGloo::{}: invalid tensor type at index 0 (expected TensorOptions(dtype={}, device={}, layout=Strided (default)), got TensorOptions(dtype={}, device={}, layout=Strided (default)))"

    @pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast"])
    def test_a_device_that_gloo_does_not_take_is_told_as_such(self, collective: str) -> None:
        """Equal dtypes: it is the device; no backend communicates on mps, others have one of their own."""
        mac = told("no-backend-for-device", self.GLOO.format(collective, "float", "cpu", "float", "mps:0"))
        intel = told("no-backend-for-device", self.GLOO.format(collective, "float", "cpu", "float (default)", "xpu:1"))

        assert "x.cpu()" in pasted(mac)
        assert "xpu:xccl" in pasted(intel)

    def test_a_dtype_and_a_device_are_not_mixed_up(self) -> None:
        """Buffers on another device that gloo takes, and buffers of another dtype."""
        device = told("collective-tensors-refused", self.GLOO.format("allgather", "float", "cuda:0", "float", "cpu"))
        dtype = told("collective-tensors-refused", self.GLOO.format("allgather", "float", "cpu", "long long", "cpu"))
        old = told(
            "collective-tensors-refused",
            "RuntimeError: ProcessGroupGloo::allgather: invalid tensor type at index 0 (expected CPULongType, got CUDALongType)",
        )

        assert "on different devices, of cuda and of cpu" in device.message
        assert "of different dtypes" in dtype.message
        assert "on different devices, of cpu and of cuda" in old.message

    def test_the_share_of_a_head_is_computed(self) -> None:
        """Half a head, three halves, and a share of the heads that the code counts."""
        view = "[rank0]: RuntimeError: shape '[1, 10, {}, 4]' is invalid for input of size {}\n"
        split = "tensor_parallel_size=4\n"

        assert (
            "has 1/2 of a head: it has more ranks than"
            in told("parallel-sizes-mismatch", split + view.format(-1, 20)).message
        )
        assert (
            "has 3/2 heads: its ranks do not divide"
            in told("parallel-sizes-mismatch", split + view.format(-1, 60)).message
        )
        assert "has 2 of 8 heads" in told("parallel-sizes-mismatch", split + view.format(8, 80)).message
        assert "parallel-sizes-mismatch" not in named(view.format(8, 80))
        assert "parallel-sizes-mismatch" not in named(split + view.format(8, 90))

    def test_one_rank_that_fails_does_not_prove_that_its_samples_differ(self) -> None:
        """The others are ended before they can say the same."""
        finding = told(
            "step-fails-without-ddp", "[rank7]: RuntimeError: shape '[16, 8, 64]' is invalid for input of size 4096"
        )

        assert "rank 7; where the others go on" in finding.message


class TestFrameworks:
    """What a framework asks for, and which of its settings is meant."""

    def test_the_sizes_that_the_trainer_cannot_compute_are_given_as_numbers(self) -> None:
        """Each entry that the message lists, and no other."""
        log = "ValueError: The model's config file has neither `hidden_size` nor `hidden_sizes` entry, therefore it's not possible to automatically fill out the following `auto` entries in the DeepSpeed config file: ['zero_optimization.reduce_bucket_size']."
        fix = pasted(told("deepspeed-auto-not-filled", log))

        assert '+"reduce_bucket_size": 16777216' in fix
        assert "stage3" not in fix

    @pytest.mark.parametrize(
        ("pairs", "ranks"),
        [
            ("- ds train_batch_size=32 vs hf train_batch_size (calculated)=4", True),
            ("- ds gradient_clipping=2.0 vs hf max_grad_norm=1.0", False),
        ],
    )
    def test_settings_that_are_not_the_trainers_are_told(self, pairs: str, ranks: bool) -> None:  # noqa: FBT001
        """The number of ranks is offered for the size of the whole batch alone."""
        log = f"ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n{pairs}\nThe easiest method is to set these DeepSpeed config values to 'auto'."
        finding = told("deepspeed-batch-size-mismatch", log)

        assert ("8 times as many ranks" in pasted(finding)) == ranks
        assert '"auto"' in pasted(finding)

    def test_zero_init_is_told_from_a_script_without_a_trainer(self) -> None:
        """Where transformers builds the model under zero.Init, the Trainer has not filled in auto yet."""
        frames = (
            'Traceback (most recent call last):\n  File "/w/t.py", line 1, in <module>\n{}  File "/x/site-packages/deepspeed/runtime/config.py", line 990, in _batch_assertion\n'
            "    train_batch > 0\nTypeError: '>' not supported between instances of 'str' and 'int'\n"
        )
        init = '  File "/x/site-packages/transformers/modeling_utils.py", line 3, in from_pretrained\n  File "/x/site-packages/deepspeed/runtime/zero/partition_parameters.py", line 9, in __init__\n'

        assert "zero.Init reads it before" in told("deepspeed-auto-not-filled", frames.format(init)).message
        assert "no Trainer and no Accelerate" in told("deepspeed-auto-not-filled", frames.format("")).message

    def test_helpers_that_are_not_built_are_the_words_of_the_rank_that_ended(self) -> None:
        """Nothing says that no exception is there; without such words, it is said."""
        ended = "E0612 09:41:23.134000 40100 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 40112) of binary: /usr/bin/python3"

        assert [*named(f"Failed to compile the C++ dataset helper functions\n{ended}")] == ["extension-not-built"]
        assert "worker-error-hidden-by-launcher" in named(f"Compiling the C++ dataset helper functions...\n{ended}")
