"""A node of the job failed, and the scheduler ended the job.

## What happens

The machine itself went down, rebooted or stopped answering: Slurm ends the job with "CANCELLED AT ... DUE TO NODE
FAILURE, SEE SLURMCTLD LOG FOR DETAILS", or "srun: error: Node failure on gpu17". What the ranks of the other nodes say
(connections that broke, time-outs) only follows. No line of the training can tell why.

Where a node's slurmd does not answer in time, no task starts there: "srun: error: Task launch for StepId=96.0 failed on
node n1: Socket timed out on send/recv operation". An image that is imported first (pyxis, enroot), or a prolog, can
take longer than Slurm waits.

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

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Place, Record, Severity, log_pattern

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


@log_pattern(
    r"srun: error: Task launch for (?:StepId=)?(?P<step>[\d.]{1,30}) failed on node (?P<node>[\w.-]{1,100}): "
    r"(?P<why>Socket timed out on send/recv operation|Communication connection failure|No route to host"
    r"|Connection refused|Zero Bytes were transmitted or received|Invalid job credential)"
)
def before_a_task(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Slurm's daemon on a node did not start the tasks of the step."""
    node = match["node"]
    yield Finding(
        f"Slurm could not start the tasks on node {node}: {match['why']}",
        (record.proof(match, "slurmd on each node of the job answers"),),
        Fix(
            "see whether the node's daemon answers, import images before the step, and leave the node out until then",
            command=f"scontrol show node {node} | grep -E 'State|Reason'\n"
            "scontrol show config | grep -i MessageTimeout\n"
            f"enroot import -o image.sqsh docker://IMAGE   # once, on a shared path\nsbatch --exclude={node} job.sh",
        ),
        Place(host=node),
        ambiguity=Ambiguity(
            (
                "slurmd on that node hangs, or is not reached (firewall on its port 6818, another network)",
                "the step's image is imported, or its prolog runs, longer than MessageTimeout",
                "clocks or munge keys of the nodes differ",
            ),
            f"srun -w {node} -N1 -n1 hostname   # without a container: it starts, or not",
        ),
    )
