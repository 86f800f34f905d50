"""The hosts reach each other over TCP, and a collective over all of them fails.

## What happens

Names, ports and packets are right, and gloo still cannot add up a megabyte over one rank of each host, broadcast it or
gather from all: versions of torch that do not understand each other, another interface than the one that was tried, or
a limit on one host.

## How to be sure

`ddpdoctor check` on all hosts runs the job and shows what each rank said.

## How to mend it

Read what the ranks said; it is torch's own message. `ddpdoctor explain` knows most of them.

## Versions and sources

Holds for all versions of torch; the jobs are an `all_reduce` and a `broadcast` of 1 MB, an `all_gather`
and a step under DDP, with the backend gloo.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DDP_STEP,
    GRADIENTS,
    LAYOUT,
    MODEL_STEP,
    SMALL_STEP,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Place,
    Severity,
    probe,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Jobs, Joint


AILMENT = Ailment("DDP314", Severity.ERROR)
TOLD_BY_OTHERS = (DDP_STEP, GRADIENTS, LAYOUT, MODEL_STEP, "model")  # the last one did not come so far
ARTICLES = {
    SMALL_STEP: "an all_reduce of 32 kB",
    "all_reduce": "an all_reduce of 1 MB",
    "broadcast": "a broadcast of 1 MB",
    "all_gather": "an all_gather",
}


@probe
def over_all_hosts(cluster: Cluster, jobs: Jobs) -> Iterator[Finding]:
    """Look at how each host fared in the job; it was run when the hosts met, from the pool of each."""
    del jobs
    if not cluster.joint:
        raise NotRun("a job over all hosts is run where all of them came and reach each other, and have torch")
    failed = [each for each in cluster.joint if each.problem and each.step not in TOLD_BY_OTHERS]
    failed = [each for each in failed if not each.problem.startswith("it did not run")]
    failed.sort(key=_lost_another)
    if failed:
        names = ", ".join(cluster.hosts[each.host].name for each in failed)
        step = next((each.step for each in failed if each.step), "job")
        stalls = all(each.step == "all_reduce" and "imed out" in each.problem for each in failed)
        yield Finding(
            f"{ARTICLES.get(step, 'the ' + step)} over {len(cluster.hosts)} hosts failed on {names}"
            + (", and one of 32 kB went well before: the connection stalls after some bytes" if stalls else ""),
            tuple(
                Evidence(
                    " ".join(each.problem.split())[:400], "the sum", f"{each.backend}, {cluster.hosts[each.host].place}"
                )
                for each in failed
            ),
            _of_a_stall(cluster)
            if stalls
            else Fix(
                "mend what torch says on the first of these hosts",
                command="TORCH_CPP_LOG_LEVEL=INFO TORCH_DISTRIBUTED_DEBUG=INFO ddpdoctor check   # on all hosts",
            ),
            Place(host=cluster.hosts[failed[0].host].name),
            ambiguity=STALL if stalls else None,
        )


STALL = Ambiguity(
    (
        "a firewall, a proxy or a limit of traffic between the hosts drops a connection after so many bytes",
        "packets are lost as soon as there is load: a cable, a port of the switch, a driver",
        "the link takes longer than 20 s for 1 MB",
    ),
    "sudo nft list ruleset; sudo iptables -S   # on each host: bytes, quota, limit\nip -s link   # errors and drops",
)


def _of_a_stall(cluster: Cluster) -> Fix:
    first, second = cluster.hosts[:2]
    address = second.gloo or second.name
    return Fix(
        "let connections between the hosts pass whatever they carry; this shows whether they do",
        command=f"nc -l -p 29999 > /dev/null   # on {second.name} (nc -l 29999 where -p is not known)\n"
        f"head -c 20M /dev/zero | timeout 60 nc -N {address} 29999; echo $?   # on {first.name}: 124 where it stalls",
    )


def _lost_another(each: Joint) -> bool:
    """Whether a host says no more than that another one has gone: that one comes first."""
    return "Read error" in each.problem or "closed by peer" in each.problem
