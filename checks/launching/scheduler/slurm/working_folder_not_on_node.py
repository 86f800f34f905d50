"""A Slurm node does not have the folder that the job was started from.

## What happens

`srun` and `sbatch` start each task in the folder in which they were called (or that of `--chdir`). On a node that does
not have it, slurmstepd says "couldn't chdir to `/home/me/run': No such file or directory: going to /tmp instead", and
the task runs in /tmp: it finds no train.py there, no data under a relative path, and writes its checkpoints to a place
that nobody looks at. Only the tasks of that node fail, and the others wait for them.

## How to be sure

`srun --nodelist=NODE pwd` prints /tmp in place of the folder.

## How to mend it

Start the job from a folder on a file system that all nodes mount, or name one by `--chdir`; in a container (pyxis,
enroot) mount it by `--container-mounts` and set `--container-workdir`.

## Versions and sources

Holds for Slurm 17 to 24 and all versions of torch. Sources: slurmstepd's src/slurmd/slurmstepd/task.c,
NVIDIA/deepops#1179.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP423", Severity.WARNING)
NOT_THERE = r"can't open file '(?P<file>[^'\n]+)': \[Errno 2\]"


@log_pattern(
    r"slurmstepd: error: couldn't chdir to [`'](?P<folder>[^'\n]+)': (?P<why>[^:\n]+)(?:: going to (?P<instead>\S+))?",
    context=(NOT_THERE,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read which folder a node lacks; it is the cause of a failure where the script was not found."""
    lost = log.first(NOT_THERE)
    yield Finding(
        f"{record.node or 'a node'} does not have the folder that the job was started from, {match['folder']}: its "
        f"tasks run in {match['instead'] or 'another folder'}" + (f", which has no {lost[1]['file']}" if lost else ""),
        (
            record.proof(match, f"{match['folder']} on every node of the job"),
            *((lost[0].proof(lost[1]),) if lost else ()),
        ),
        Fix(
            "start the job from a folder that all nodes mount",
            command=f"srun ls -d {match['folder']}   # on each node\nsbatch --chdir=/shared/folder job.sh",
        ),
        record.place,
        severity=Severity.ERROR if lost else None,
    )
