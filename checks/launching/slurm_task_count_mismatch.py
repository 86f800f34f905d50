"""Slurm started another number of tasks than the training asks for.

## What happens

Lightning takes each Slurm task as one rank. If the numbers differ it says so: "You set `devices=4` in Lightning, but
the number of tasks per node configured in SLURM `--ntasks-per-node=1` does not match", and in early versions "You
requested 2 GPUs but launched 1 slurm tasks". Where nothing says so, the ranks that never came are waited for.

## How to be sure

The two counts in the message; `echo $SLURM_NTASKS_PER_NODE $SLURM_NNODES` in the job.

## How to mend it

One task for each GPU, `--ntasks-per-node` equal to devices and `--nodes` equal to num_nodes, and start
with srun; `--ntasks` is not what Lightning reads.

## Versions and sources

Source: Lightning, SLURMEnvironment and the Trainer's connector; "Run on a SLURM managed cluster". Holds for Lightning
0.7 to 2.5 with torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP412", Severity.ERROR)
TASKS = (
    r"You set `(?:devices|num_nodes)=(\d+)` in Lightning, but the number of (?:tasks per node|nodes) configured "
    r"in SLURM `--(n\w+(?:-per-node)?)=(\d+)`"
)


@log_pattern(TASKS)
def in_lightning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two counts that the message gives."""
    yield Finding(
        f"the Trainer is set to {match[1]}, and Slurm's --{match[2]} to {match[3]}",
        (record.proof(match, f"--{match[2]}={match[1]}"),),
        Fix("let Slurm start what the Trainer asks for", command=f"#SBATCH --{match[2]}={match[1]}"),
        record.place,
    )


@log_pattern(r"You set `--ntasks=(\d+)` in your SLURM bash script, but this variable is not supported")
def total(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the option that Lightning does not take."""
    yield Finding(
        f"--ntasks={match[1]} is set, and Lightning takes the number of tasks a node",
        (record.proof(match, f"--ntasks-per-node={match[1]}"),),
        Fix("set the number for each node", command=f"#SBATCH --ntasks-per-node={match[1]}"),
        record.place,
    )


@log_pattern(r"You requested (\d+)s? GPUs but launched ([1-9]\d*)s? slurm tasks")
def in_early_lightning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two counts of a warning of early versions, which then start what is missing; 0 is no Slurm job."""
    yield Finding(
        f"{match[1]} GPUs are requested, and Slurm started {match[2]} tasks",
        (record.proof(match, f"{match[1]} tasks"),),
        Fix("start one task for each GPU", command=f"#SBATCH --ntasks-per-node={match[1]}"),
        record.place,
        severity=Severity.WARNING,
    )
