"""mpirun refuses to start ranks as root.

## What happens

Open MPI starts nothing for the user root, which is the user in most containers: "mpirun has detected an attempt to run
as root". horovodrun and other launchers on top of mpirun end with it.

## How to be sure

`id -u` prints 0.

## How to mend it

In a container, allow it: `mpirun --allow-run-as-root`, or set OMPI_ALLOW_RUN_AS_ROOT=1 and
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, which launchers on top of mpirun pass on. On a host, be another user.

## Versions and sources

Holds for Open MPI 2 to 5, whatever the torch. Source: Open MPI, orte/tools/orterun (help-orterun.txt, "root").
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP420", Severity.ERROR)


@log_pattern(r"(?:mpirun|mpiexec|orterun|prterun|prte) has detected an attempt to run as root")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what mpirun says before it ends."""
    yield Finding(
        "mpirun starts no rank for the user root",
        (record.proof(match, "another user, or the permission"),),
        Fix(
            "allow it, where this is a container",
            command="export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        ),
        record.place,
    )
