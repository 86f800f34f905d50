"""The GPUs that a training would use are of different models.

Data-parallel training waits for the slowest GPU in each step, and the batch must fit into the smallest memory.
DataParallel even warns of it. Results stay right; time is lost.

To be sure: `nvidia-smi --query-gpu=index,name,memory.total --format=csv`.

Source: torch.nn.DataParallel warns of an "imbalance between your GPUs" below 75 % of memory or cores (torch 2.2 to
2.13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Severity, Table
from ddpdoctor.check import probe
from ddpdoctor.probe.gpus import Gpus, visible
from ddpdoctor.probe.limits import human

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP207", Severity.NOTE)


@probe
def models(facts: Facts, gpus: Gpus) -> Iterator[Finding]:
    """Compare the names of the GPUs that CUDA_VISIBLE_DEVICES leaves."""
    seen = visible(facts.environ.get("CUDA_VISIBLE_DEVICES"), gpus)
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
                tuple((gpu.index, str(gpu.name), human(gpu.memory_total)) for gpu in used),
            ),
        )
