"""The hosts reach each other over TCP, and a collective over all of them fails.

## What happens

Names, ports and packets are right, and gloo still cannot add up a megabyte over one rank of each host: versions of
torch that do not understand each other, another interface than the one that was tried, or a limit on one host.

## How to be sure

`ddpdoctor check` on all hosts runs the job and shows what each rank said.

## How to mend it

Read what the ranks said; it is torch's own message. `ddpdoctor explain` knows most of them.

## Versions and sources

Holds for all versions of torch; the job is an `all_reduce` of 1 MB with the backend gloo.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Jobs


AILMENT = Ailment("DDP314", Severity.ERROR)


@probe
def over_all_hosts(cluster: Cluster, jobs: Jobs) -> Iterator[Finding]:
    """Look at how each host fared in the job; it was run when the hosts met, from the pool of each."""
    del jobs
    if not cluster.joint:
        raise NotRun("a job over all hosts is run where all of them came and reach each other, and have torch")
    failed = [each for each in cluster.joint if each.problem and not each.problem.startswith("it did not run")]
    if failed:
        names = ", ".join(cluster.hosts[each.host].name for each in failed)
        yield Finding(
            f"an all_reduce of 1 MB over {len(cluster.hosts)} hosts failed on {names}",
            tuple(
                Evidence(
                    " ".join(each.problem.split())[:400], "the sum", f"{each.backend}, {cluster.hosts[each.host].place}"
                )
                for each in failed
            ),
            Fix(
                "mend what torch says on the first of these hosts",
                command="TORCH_CPP_LOG_LEVEL=INFO TORCH_DISTRIBUTED_DEBUG=INFO ddpdoctor check   # on all hosts",
            ),
            Place(host=cluster.hosts[failed[0].host].name),
        )
