"""Another job answers at the master's address and port.

## What happens

Two jobs have the same master: an older one that was not ended, or two that were started with the same address and port.
The hosts of one come to the store of the other, and count as its ranks, or wait in vain.

## How to be sure

`ddpdoctor check` on all hosts knows the hosts of its own launch by a token: the launcher's id of the job (torchrun's
`--rdzv_id`, Slurm's job and step), or DDPDOCTOR_TOKEN.

## How to mend it

Give all hosts of one job the same id (`--rdzv_id`), and each job a port of its own.

## Versions and sources

Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import OTHER_JOB, WRONG_TOKEN, Ailment, Evidence, Finding, Fix, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP370", Severity.ERROR)


@probe
def by_its_token(cluster: Cluster) -> Iterator[Finding]:
    """Look at who was refused, or who refused."""
    host = cluster.hosts[0]
    where = f"{host.master}:{host.port}"
    for each in cluster.tries:
        if each.ended == OTHER_JOB:
            yield Finding(
                f"the master at {where} belongs to another job than {host.place}",
                (Evidence("it refused the token of this launch", "one job id on all hosts", f"{where}"),),
                Fix(
                    "give all hosts of the job the same id",
                    command="env | grep -E 'TORCHELASTIC_RUN_ID|SLURM_JOB_ID|DDPDOCTOR_TOKEN'   # on both hosts",
                ),
                Place(host=host.name),
            )
    if cluster.met and len(cluster.hosts) < cluster.expected:
        refused = sorted({each.address for each in cluster.strangers if each.what == WRONG_TOKEN})
        for address in refused:
            yield Finding(
                f"a host at {address} came to {where} with the token of another job",
                (Evidence(f"{address} has another token", "one job id on all hosts", f"who came to {where}"),),
                Fix(
                    "give all hosts of the job the same id",
                    command="env | grep -E 'TORCHELASTIC_RUN_ID|SLURM_JOB_ID|DDPDOCTOR_TOKEN'   # on both hosts",
                ),
                Place(host=address),
            )
