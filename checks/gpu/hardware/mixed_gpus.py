"""The GPUs that a training would use are of different models.

## What happens

In each step data-parallel training waits for the slowest GPU, and the batch must fit into the smallest memory. The
results stay right; only time is lost. DistributedDataParallel says nothing about it. DataParallel warns of an
"imbalance between your GPUs" where one has less than 75 % of the memory or the cores of another.

## How to be sure

ddpdoctor compares the names of the GPUs that CUDA_VISIBLE_DEVICES leaves visible, as NVML gives them, and shows each
with its memory. To verify it by hand:

    nvidia-smi --query-gpu=index,name,memory.total --format=csv

## How to mend it

Train on the GPUs that are alike; for example, where GPUs 0 and 1 are of one model:

    export CUDA_VISIBLE_DEVICES=0,1

Or keep all of them, and choose the batch size for the smallest memory. Measure the samples per second of both, and
take the faster one.

## Versions and sources

The warning of torch.nn.DataParallel is in torch 2.2 to 2.13 (source: torch.nn.DataParallel). That each step waits for
the slowest rank holds for all versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Gpus, Severity, Table, human_size, probe, visible_gpus

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP207", Severity.NOTE)


@probe
def models(facts: Facts, gpus: Gpus) -> Iterator[Finding]:
    """Compare the names of the GPUs that CUDA_VISIBLE_DEVICES leaves."""
    seen = visible_gpus(facts.environ.get("CUDA_VISIBLE_DEVICES"), gpus)
    used = [gpu for gpu in gpus.devices if gpu.index in seen and gpu.lost is None]
    names = Counter(gpu.name for gpu in used)
    if len(names) > 1:
        common = names.most_common(1)[0][0]
        alike = ",".join(str(gpu.index) for gpu in used if gpu.name == common)
        yield Finding(
            f"{len(names)} models of GPU in one training: {', '.join(str(name) for name in names)}",
            tuple(Evidence(f"{count} x {name}", f"{len(used)} of one model", "NVML") for name, count in names.items()),
            Fix(f"train on the {names[common]} that are alike", command=f"export CUDA_VISIBLE_DEVICES={alike}"),
            table=Table(
                ("GPU", "model", "memory"),
                tuple((gpu.index, str(gpu.name), human_size(gpu.memory_total)) for gpu in used),
            ),
        )
