"""Temporary files cannot be written on this host: TMPDIR names a folder that is not there, is full or read-only.

## What happens

`TMPDIR=/scratch/4711` was made on the host where the job was submitted, and goes to all hosts with its environment; or
one host's /tmp is full of what earlier jobs left. Python's tempfile says nothing and takes another folder, /tmp or the
current one: torchrun's logs, compiled kernels and unpacked archives land there. What takes TMPDIR as it stands fails:
with the sharing strategy `file_system` the first tensor that a data loader's worker hands over ends in
"torch_shm_manager: could not generate a random directory for manager socket". Where no folder is left, Python raises
"No usable temporary directory found". Only the ranks of that host fail, and those of the others wait for them.

## How to be sure

`echo $TMPDIR; df -h ${TMPDIR:-/tmp}; df -i ${TMPDIR:-/tmp}; touch ${TMPDIR:-/tmp}/x` on that host, in the job.

## How to mend it

Make the folder in the job, on each host: `srun --ntasks-per-node=1 mkdir -p $TMPDIR`; or name one that is there,
`export TMPDIR=/tmp`; or delete what earlier jobs left.

## Versions and sources

Holds for all versions of torch; tried with 2.13. Source: torch/lib/libshm/manager.cpp; Python's Lib/tempfile.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Record, Severity, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, Temporary

AILMENT = Ailment("DDP174", Severity.WARNING)


@probe
def of_this_host(facts: Facts) -> Iterator[Finding]:
    """Look at the folder that TMPDIR names, or at /tmp."""
    found = facts.temporary
    if not found.problem:
        return
    named = f"{found.name}={found.folder}" if found.name else found.folder
    goes = f"Python goes to {found.instead} without a word" if found.instead else "no other folder can be written"
    yield Finding(
        f"temporary files cannot be written to {named}: {found.problem}; {goes}",
        (Evidence(found.problem, "a folder with room, which this user can write to", named),),
        Fix(
            "make that folder in the job, on each host, or name another one"
            if found.name
            else "delete what earlier jobs left there, or name another folder",
            command=_command(found),
        ),
        Place(file=found.folder, variable=found.name or None),
        severity=None if found.instead else Severity.ERROR,
    )


def _command(found: Temporary) -> str:
    if not found.name:
        return f"df -h {found.folder}; df -i {found.folder}; ls -lat {found.folder} | head -30"
    made = f"mkdir -p {found.folder} && touch {found.folder}/x   # in the job, on each host"
    return f"{made}\nexport {found.name}={found.instead or '$HOME'}   # or this"


@log_pattern(
    r"torch_shm_manager[^\n]{0,300}could not generate a random directory for manager socket"
    r"|No usable temporary directory found in \[(?P<tried>[^\]\n]{1,500})\]"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read that torch, or Python, has found no folder for its temporary files."""
    yield Finding(
        f"no temporary file can be written on this host: {match['tried']} were tried"
        if match["tried"]
        else "torch_shm_manager cannot make its socket: TMPDIR names a folder that is not there, is full, or cannot be "
        "written to",
        (record.proof(match, "a folder with room, which this user can write to"),),
        Fix(
            "make that folder on this host, or name one that is there",
            command="echo TMPDIR=$TMPDIR; df -h ${TMPDIR:-/tmp}; df -i ${TMPDIR:-/tmp}; export TMPDIR=/tmp",
        ),
        record.place,
        severity=Severity.ERROR,
    )
