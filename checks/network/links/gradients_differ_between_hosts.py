"""Gradients under DDP over all hosts are not those of one process.

## What happens

The hosts reach each other and a plain `all_reduce` gives the right sum, and still a step of DistributedDataParallel
over them leaves other gradients than one process that has the batches of all: another build or a patched torch on one
host, a communication hook that one host registers and the others do not, memory or a network card that changes
numbers. The replicas drift apart, and nothing raises.

## How to be sure

`ddpdoctor check` on all hosts trains a small model in double precision for a step, from numbers that each host makes
for itself. With `--model` and `--batch` it takes a step of that model, too, and compares DDP's gradients with the
mean of those that each host computes alone.

## How to mend it

Run the check with pairs of hosts until one host is left that is in every bad pair (`NNODES=2`). Install the same
torch there from the same place, and leave out hooks and patches of the host's own: `sitecustomize.py`, `PYTHONPATH`,
`LD_PRELOAD`.

## Versions and sources

Holds for all versions of torch. Source: torch/nn/parallel/distributed.py; the job is ddpdoctor/cluster/joint/jobs.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP_STEP, GRADIENTS, Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Jobs

AILMENT = Ailment("DDP338", Severity.ERROR)


@probe
def over_all_hosts(cluster: Cluster, jobs: Jobs) -> Iterator[Finding]:
    """Look at the gradients of the small model, and of the user's where one was named."""
    del jobs
    if not cluster.joint:
        raise NotRun("a job over all hosts is run where all of them came and reach each other, and have torch")
    wrong = [each for each in cluster.joint if each.step in (DDP_STEP, GRADIENTS) and each.problem]
    if wrong:
        names = ", ".join(cluster.hosts[each.host].name for each in wrong)
        what = "a small model" if wrong[0].step == DDP_STEP else "your model"
        yield Finding(
            f"a step of {what} under DDP over {len(cluster.hosts)} hosts leaves wrong gradients on {names}",
            tuple(
                Evidence(each.problem[:400], "the mean over all hosts", cluster.hosts[each.host].place)
                for each in wrong
            ),
            Fix(
                "find the host by pairs, and what it has of its own around torch",
                command="python -c 'import torch; print(torch.__file__, torch.__version__)'; env | grep -E 'PYTHONPATH|"
                "LD_PRELOAD'   # on all hosts",
            ),
            Place(host=cluster.hosts[wrong[0].host].name),
        )
