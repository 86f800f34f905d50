"""Slurm's hosts refuse each other's credentials.

## What happens

Slurm signs what its hosts send each other, by munge, with the time of the signature. Where the clocks of two hosts are
minutes apart, or munge is down or slow on one of them, the other refuses it: "Job credential expired", "Munge
encode failed", "Munge decode failed: Expired credential", "Protocol authentication error". The step does not start, or
its end is not told. No line of the training is at fault.

## How to be sure

`date` on both hosts shows clocks that are apart. `munge -n | ssh HOST unmunge` shows whether the other host takes this
one's credential.

## How to mend it

Set the clocks (chrony or ntpd on all hosts), start munged where it is down, and until then leave the host out.

## Versions and sources

Holds for Slurm 20 to 25, whatever the torch. Source: Slurm, src/common/slurm_errno.c (`ESLURMD_CREDENTIAL_EXPIRED`) and
src/plugins/auth/munge; munge's documentation of unmunge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP418", Severity.ERROR)


@log_pattern(
    r"srun: error: Task launch for StepId=\S+ failed on node (?P<node>[^\s:]+): "
    r"(?:Job credential expired|Protocol authentication error|Invalid job credential)"
    r"|(?:srun|slurmstepd|slurmd): error: Application launch failed: (?:Job credential expired|Invalid job credential)"
    r"|(?:srun|sbatch|slurmstepd|slurmd|salloc): error: (?:auth_munge: )?[Mm]unge (?:encode|decode) failed: [^\n]{1,80}"
    r"|(?:srun|sbatch|salloc): error: [^\n]{0,120}Protocol authentication error"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the host where srun does."""
    node = match["node"]
    yield Finding(
        f"{node} refuses the credential of the job's step" if node else "Slurm's hosts refuse each other's credentials",
        (record.proof(match, "clocks that agree, and munge on all hosts"),),
        Fix(
            "set the clocks of the hosts, and start munged where it is down",
            command=f"date; munge -n | ssh {node or 'HOST'} 'date; unmunge'",
        ),
        record.place,
    )
