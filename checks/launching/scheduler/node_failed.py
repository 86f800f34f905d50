"""A node of the job failed, and the scheduler ended the job.

## What happens

The machine itself went down, rebooted or stopped answering: Slurm ends the job with "CANCELLED AT ... DUE TO NODE
FAILURE, SEE SLURMCTLD LOG FOR DETAILS", or "srun: error: Node failure on gpu17". What the ranks of the other nodes say
(connections that broke, time-outs) only follows. No line of the training can tell why.

## How to be sure

`sacct -j JOB` has the state NODE_FAIL; `scontrol show node NAME` gives the reason and when the node last booted.

## How to mend it

Train on without that node (`--exclude`), resume from the last checkpoint, and have the node looked at. `--requeue`
starts such jobs again.

## Versions and sources

Holds for Slurm 20 to 25, whatever the torch. Source: Slurm documentation, "Job State Codes" and sbatch `--requeue`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP433", Severity.ERROR)


@log_pattern(
    r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON (?P<node>\S+) CANCELLED AT \S+ DUE TO NODE FAILURE"
    r"|srun: error: Node failure on (?P<named>\S+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Slurm names the node where srun speaks; slurmstepd only says on which node the step ran."""
    node = match["named"]
    yield Finding(
        f"node {node} failed under the job" if node else "a node of the job failed",
        (record.proof(match, "nodes that live as long as the job"),),
        Fix(
            "leave the node out and resume from the last checkpoint",
            command=f"sbatch --requeue --exclude={node or 'NODE'} job.sh; scontrol show node {node or 'NODE'}",
        ),
        Place(host=node or record.node),
    )
