from __future__ import annotations

import importlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from ddpdoctor.facets import Check, Instrument, NotRun
from ddpdoctor.host import gpus as module
from ddpdoctor.host.gpus import NO_DRIVER, Gpu, Gpus, gather_gpus, visible_gpus
from ddpdoctor.jobs.outcome import Returned

if TYPE_CHECKING:
    from ddpdoctor.host.facts import Facts
    from ddpdoctor.jobs.pool import Jobs

_simulated_gpus: Any = importlib.import_module(
    "ddpdoctor.fixtures._simulated_gpus"
)  # type checkers know the folder as fixtures/


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    """Skip where the stand-in cannot be compiled."""
    try:
        _simulated_gpus.library()
    except NotRun as exc:
        pytest.skip(str(exc))


def test_the_real_pynvml_reads_a_healthy_rack(facts: Facts) -> None:
    """Eight GPUs, with all that the checks judge."""
    with _simulated_gpus.simulated_gpus(facts, "eight") as world:
        devices = world.gpus.devices

    assert len(devices) == 8
    assert devices[3] == Gpu(
        index=3, uuid="GPU-00000003-0000-0000-0000-000000000000", name="NVIDIA H100 80GB HBM3",
        bus_id="00000000:13:00.0", memory_total=85520809984, memory_used=629145600, ecc_uncorrected=0,
        remapped=(0, 0, 0, 0), throttle=1, temperature=35, compute_mode=0, mig=False, pcie_width=16,
        pcie_width_max=16, capability=(9, 0), busy=0, p2p=(0, 0, 0, None, 0, 0, 0, 0),
    )  # fmt: skip


def _gpu_checks(checks: Mapping[str, Check]) -> list[Check]:
    return [check for check in checks.values() if check.area == "gpu"]


@pytest.mark.parametrize("name", ["eight", "two", "one"])
def test_a_healthy_rack_raises_no_alarm(facts: Facts, checks: dict[str, Check], name: str) -> None:
    """No check of GPUs reports anything on healthy ones, with and without CUDA_VISIBLE_DEVICES."""
    for environ in ({}, {"CUDA_VISIBLE_DEVICES": "0"}):
        with _simulated_gpus.simulated_gpus(facts, name, environ=environ) as world:
            for check in _gpu_checks(checks):
                for facet in check.of(Instrument.PROBE):
                    if "jobs" in facet.needs:
                        continue
                    offered: dict[str, Any] = {"facts": world, "gpus": world.gpus}
                    try:
                        found = list(facet.examine(**{need: offered[need] for need in facet.needs}))
                    except NotRun:
                        continue
                    assert found == [], check.slug


def test_a_lost_gpu_does_not_hide_the_others(facts: Facts) -> None:
    """What NVML cannot reach is told apart from what it can."""
    with _simulated_gpus.simulated_gpus(facts, "lost") as world:
        first, second = world.gpus.devices

    assert (first.lost, second.lost) == (None, "GPU is lost")


def test_an_nvml_that_hangs_costs_its_patience_and_no_more(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a fact like others."""
    monkeypatch.setattr(module, "PATIENCE", 2.0)
    started = time.monotonic()
    with _simulated_gpus.simulated_gpus(facts, "hang") as world:
        assert world.gpus.error == "NVML did not answer within 2 s"

    assert time.monotonic() - started < 10


def test_without_a_driver_nothing_is_started() -> None:
    """No library, no child process: the answer is there at once."""
    started = time.monotonic()
    gpus = gather_gpus({"PATH": os.environ["PATH"]})

    if gpus.error != NO_DRIVER:
        pytest.skip("this machine has a driver")
    assert gpus.devices == ()
    assert time.monotonic() - started < 0.2


def test_the_pci_bus_is_counted(tmp_path: Path) -> None:
    """Display controllers of NVIDIA count; their audio functions and other vendors do not."""
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")):
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")

    assert gather_gpus({}, root=tmp_path).on_bus == 1


FOUR = Gpus("", "570", 12080, tuple(Gpu(index, uuid=f"GPU-{index}aaa") for index in range(4)), 4)


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (None, (0, 1, 2, 3)), ("", ()), ("-1", ()), ("2,0", (2, 0)), (" 1 , 2", (1, 2)), ("0,9,1", (0,)), ("0,0", ()),
        ("GPU-3", (3,)), ("GPU-", ()), ("cuda:0", ()), ("0;1", ()),
    ],
)  # fmt: skip
def test_cuda_visible_devices(setting: str | None, seen: tuple[int, ...]) -> None:
    """As CUDA reads it: in order, up to the first entry that names no GPU, nothing if one stands twice."""
    assert visible_gpus(setting, FOUR) == seen


@given(st.text() | st.lists(st.integers(-2, 5)).map(lambda numbers: ",".join(map(str, numbers))))
def test_any_setting_shows_each_gpu_at_most_once(setting: str) -> None:
    """No text makes it fail, or see what is not there."""
    seen = visible_gpus(setting, FOUR)

    assert len(set(seen)) == len(seen)
    assert set(seen) <= {0, 1, 2, 3}


def test_memory_of_processes_that_nvml_does_not_tell_is_unknown() -> None:
    """NVML_VALUE_NOT_AVAILABLE is no number of bytes."""
    assert module._gpu({"index": 0, "processes": [[7, (1 << 64) - 1]]}).processes == ((7, None),)


@pytest.mark.gpu(1)
def test_each_gpu_computes_as_the_cpu_does(facts: Facts, jobs: Jobs, checks: dict[str, Check]) -> None:
    """The smoke job passes on every real GPU."""
    (facet,) = checks["gpu-computes-wrongly"].of(Instrument.PROBE)

    assert list(facet.examine(facts=facts, gpus=facts.gpus, jobs=jobs)) == []


@pytest.mark.gpu(1)
def test_collectives_over_nccl_are_right(facts: Facts, jobs: Jobs, checks: dict[str, Check]) -> None:
    """One rank on each real GPU."""
    (facet,) = checks["nccl-collectives-fail"].of(Instrument.PROBE)

    assert list(facet.examine(jobs=jobs, gpus=facts.gpus, backends=("nccl",))) == []


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        ("sm_75 sm_80 sm_90", (8, 6), True), ("sm_75 sm_80 sm_90", (12, 0), False),
        ("sm_80 compute_90", (12, 0), True), ("sm_80", (7, 5), False), ("sm_90a", (9, 0), True),
    ],
)  # fmt: skip
def test_which_builds_run_on_which_gpu(
    jobs: Jobs, checks: dict[str, Check], built: str, capability: tuple[int, int], runs: object
) -> None:
    """Binary code runs on the same major version and newer minor ones; PTX on anything newer."""
    (facet,) = checks["cuda-arch-not-in-build"].of(Instrument.PROBE)
    gpus = replace(FOUR, devices=(replace(FOUR.devices[0], capability=capability),))

    class Built:
        def run(self, *_: object, **__: object) -> tuple[Returned]:
            return (Returned(0, "", built),)

    assert (list(facet.examine(gpus=gpus, jobs=Built())) == []) is runs
    assert jobs.world_size == 2
