"""More ranks are planned on this host than it has GPUs, or two ranks share one.

With NCCL each rank needs a GPU of its own: the surplus ranks fail with "invalid device ordinal" in set_device, or,
where the script takes the rank modulo the number of GPUs, NCCL refuses with "Duplicate GPU detected".

To be sure: compare `nvidia-smi -L` with --nproc_per_node, and with CUDA_VISIBLE_DEVICES.

Judged only where the environment says how many ranks there are (LOCAL_WORLD_SIZE, or LOCAL_RANK). With gloo on CPU
alone a surplus does no harm. Source: torch.distributed documentation, "Which backend to use"; NCCL documentation,
"Creating a Communicator". Holds for torch 2.2 and later.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.gpus import Gpus, visible

CARD = Card("DDP212", Severity.ERROR)


@probe
def counted(facts: Facts, gpus: Gpus) -> Iterator[Finding]:
    """Compare the declared local ranks with the GPUs that they would see."""
    seen = len(visible(facts.environ.get("CUDA_VISIBLE_DEVICES"), gpus))
    for variable, surplus in (("LOCAL_WORLD_SIZE", 0), ("LOCAL_RANK", 1)):
        value = facts.environ.get(variable, "")
        # One visible GPU is how Slurm and Ray bind each rank to a GPU of its own.
        if value.isascii() and value.isdigit() and seen > 1 and int(value) + surplus > seen:
            yield Finding(
                f"{variable}={value}, and a rank sees {seen} GPUs",
                (Evidence(f"{variable}={value}", f"at most {seen - surplus} with {seen} GPUs", "environment"),),
                Fix("start one rank for each GPU", command=f"torchrun --standalone --nproc_per_node={seen} train.py"),
                Place(variable=variable),
            )
            return
    if not any(facts.environ.get(name) for name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK")):
        raise NotRun("the environment does not say how many ranks there are here")
