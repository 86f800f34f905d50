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
