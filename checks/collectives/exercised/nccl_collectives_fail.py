"""A collective over NCCL hangs, fails or gives a wrong answer on these GPUs.

## What happens

A collective over NCCL hangs, fails or gives a wrong answer on these GPUs, on numbers whose answer is known. Three
paths can be at fault:

- it works without peer-to-peer: the GPUs advertise direct access to each other's memory that does not work. Typical
  with PCIe ACS or an IOMMU enabled, and with consumer cards. The first transfer then never ends, with GPUs at 100 %,
  and training hangs right after start.
- it works without shared memory: /dev/shm is too small or not writable.
- neither helps: the driver, the NCCL library or the GPU itself.

## How to be sure

ddpdoctor runs every collective once over NCCL, one rank on each GPU. When one hangs or fails, all are run again with
NCCL_P2P_DISABLE=1, and again with NCCL_SHM_DISABLE=1, and the finding names the path that is broken. Where neither
helps, run `NCCL_DEBUG=INFO ddpdoctor check --only nccl-collectives-fail --verbose` and read the first line that
contains "WARN".

## How to mend it

Set the variable of the finding, `NCCL_P2P_DISABLE=1` or `NCCL_SHM_DISABLE=1`: it goes around the broken path at once,
but costs bandwidth. Then mend the path itself:

- peer-to-peer: disable ACS in the firmware, or the IOMMU;
- shared memory: make /dev/shm larger and writable;
- neither: what the "WARN" line of NCCL names.

## Versions and sources

Holds for torch 2.2 and later with NCCL 2.19 and later. Source: NCCL documentation, "Troubleshooting", "PCI Access
Control Services" and "Shared memory".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Outcome, Returned, Severity, probe

from ._exercise import exercise
from ._verdict import failures, wrong_answers

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus, Jobs

AILMENT = Ailment("DDP702", Severity.ERROR)
DETOURS = {
    "NCCL_P2P_DISABLE": "peer-to-peer access between the GPUs is advertised but broken (ACS, IOMMU)",
    "NCCL_SHM_DISABLE": "NCCL's shared-memory transport is broken (/dev/shm)",
}


@probe
def one_rank_on_each_gpu(jobs: Jobs, gpus: Gpus, backends: tuple[str, ...]) -> Iterator[Finding]:
    """Run every collective, and again around the path that is suspected."""
    if "nccl" not in backends:
        raise NotRun("--backend leaves nccl out")
    ranks = _usable(jobs)
    if not ranks:
        raise NotRun(f"torch sees none of the {len(gpus.devices)} GPUs, or is built without NCCL")
    outcomes = _run(jobs, ranks, {})
    evidence = failures(outcomes) or wrong_answers(outcomes)
    if not evidence:
        return
    for variable, cause in DETOURS.items():
        if not (failures(around := _run(jobs, ranks, {variable: "1"})) or wrong_answers(around)):
            yield Finding(
                f"collectives over NCCL work on {ranks} GPUs only with {variable}=1: {cause}",
                (*evidence, Evidence(f"right answers with {variable}=1", "right answers without it")),
                Fix("go around the broken path until it is mended", command=f"export {variable}=1"),
            )
            return
    yield Finding(
        f"collectives over NCCL fail on {ranks} GPUs, also without P2P and without shared memory",
        evidence,
        Fix("let NCCL say why", command="NCCL_DEBUG=INFO ddpdoctor check --only DDP702 --verbose"),
    )


def _run(jobs: Jobs, ranks: int, environ: dict[str, str]) -> tuple[Outcome, ...]:
    return jobs.run(exercise, "cuda", ranks=ranks, backend="nccl", deadline=40, environ=environ)


def _usable(jobs: Jobs) -> int:
    outcome = jobs.run(count_gpus, ranks=1, backend=None)[0]
    return int(outcome.value) if isinstance(outcome, Returned) else 0


def count_gpus() -> int:
    """Return the number of GPUs that NCCL can use from torch, in a rank."""
    import torch
    import torch.distributed as dist

    return torch.cuda.device_count() if dist.is_nccl_available() and torch.cuda.is_available() else 0
