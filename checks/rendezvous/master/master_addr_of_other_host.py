"""Rank 0 runs on this host, and MASTER_ADDR is the address of another one.

## What happens

Rank 0 opens the store on its own host. All ranks, rank 0 included, look for it at MASTER_ADDR. If that is the address
of another host, they all wait until their time-out. Usual causes: the address of an old allocation; the address from
an example; the second host of the list; or loopback on a host that is not that of rank 0.

## How to be sure

Run `ip -brief address` on the host of rank 0: none of the addresses is MASTER_ADDR. ddpdoctor resolves MASTER_ADDR
and compares it with the addresses of this host, where the environment says whether rank 0 runs here. In logs it looks
for an address that nobody has, such as the words of a README.

An address that a load balancer or NAT brings to this host is right, so this is a warning; in Kubernetes it is not
judged. `nc -zv "$MASTER_ADDR" "${MASTER_PORT:-29500}"`, while rank 0 starts, decides.

## How to mend it

Set MASTER_ADDR on all hosts to the address of rank 0's host, as `hostname -I` prints it there. In Slurm:
`export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "TCP initialization".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Place,
    Record,
    Severity,
    is_loopback,
    log_pattern,
    probe,
)

from ..._hosts.cluster import STARTED_WITH_AN_ADDRESS
from ..._hosts.hosts import holds_rank_zero, routable_interfaces
from ..._hosts.store import GAVE_UP, is_placeholder

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Facts

AILMENT = Ailment("DDP356", Severity.ERROR)
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - what a server listens on, not where it is


@probe
def beside_rank_zero(facts: Facts) -> Iterator[Finding]:
    """Compare the master's addresses with this host's."""
    name, first = facts.environ.get("MASTER_ADDR"), holds_rank_zero(facts.environ)
    if not name or first is None or "KUBERNETES_SERVICE_HOST" in facts.environ:
        raise NotRun("the environment does not say where rank 0 runs")
    addresses = facts.network.resolve(name).addresses
    if not addresses or any(ip_address(each.partition("%")[0]).is_unspecified for each in addresses):
        raise NotRun("MASTER_ADDR does not resolve, or is the address of no host")
    ours = routable_interfaces(facts.network)
    own = next((a for each in facts.network.interfaces if each.name in ours for a in each.addresses), "127.0.0.1")
    if first and not any(facts.network.owns(address) for address in addresses):
        yield Finding(
            f"rank 0 runs on this host, and MASTER_ADDR={name} is none of its addresses",
            (Evidence(f"{name} is {', '.join(addresses)}", f"one of this host's, as {own}", "getaddrinfo"),),
            Fix("set this host's address, on all hosts", command=f"export MASTER_ADDR={own}"),
            Place(variable="MASTER_ADDR", host=facts.network.hostname),
            severity=Severity.WARNING,
            ambiguity=Ambiguity(
                ("the address is wrong", "a NAT or load balancer brings it to this host"),
                f"nc -zv {addresses[0]} ${{MASTER_PORT:-29500}}   # while rank 0 is starting here",
            ),
        )
    elif not first and all(map(is_loopback, addresses)):
        yield Finding(
            f"rank 0 runs on another host, and MASTER_ADDR={name} is this one",
            (Evidence(f"{name} is {', '.join(addresses)}", "the address of the host of rank 0", "getaddrinfo"),),
            Fix("set the address of the host of rank 0 on all hosts", command=exported(facts.environ)),
            Place(variable="MASTER_ADDR", host=facts.network.hostname),
        )


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """See that the host at whose address all have met is not the one of rank 0."""
    zero = next((each for each in cluster.hosts if each.node == 0), None)
    if zero is None or not cluster.met or zero.launcher not in STARTED_WITH_AN_ADDRESS:
        return
    owners = [each for each in cluster.hosts if not each.addresses.keys().isdisjoint(zero.master_at.split())]
    if len(owners) != 1 or owners[0] is zero:
        return  # a bridge of containers has one address on all hosts
    owner, own = owners[0], next(each for each in zero.master_at.split() if each in owners[0].addresses)
    there = zero.gloo if zero.gloo and not is_loopback(zero.gloo) else zero.name
    yield Finding(
        f"rank 0 runs on {zero.name} and opens the store there, and MASTER_ADDR={zero.master} is {owner.place}: all "
        "ranks look for it where nobody listens",
        (
            Evidence(f"{own} is of {owner.name}, host {owner.node}", "an address of host 0", "the meeting"),
            Evidence(f"{zero.name} is host 0", "", zero.by),
        ),
        Fix("set the address of the host of rank 0 on all hosts", command=f"export MASTER_ADDR={there}"),
        Place(variable="MASTER_ADDR", host=zero.name),
    )


def exported(environ: Mapping[str, str]) -> str:
    """Return how all ranks get the address of the first host, by what the launcher has."""
    if "OMPI_COMM_WORLD_RANK" in environ and "SLURM_JOB_NODELIST" not in environ:
        return "mpirun -x MASTER_ADDR=10.0.0.1 ...   # as `hostname -I` prints it on the host of rank 0"
    if "SLURM_JOB_NODELIST" in environ:
        return 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)'
    return "export MASTER_ADDR=10.0.0.1   # as `hostname -I` prints it on the host of rank 0"


@log_pattern(GAVE_UP, supersedes=("master-unresolvable",))
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look for an address that nobody has: a word of a README, a netmask, a range for documentation."""
    if is_placeholder(match[1]):
        yield Finding(
            f"the address of the master, {match[1]}, is none to connect to: it leads to this host, and no store is here"
            if match[1] == ANY_ADDRESS
            else f"the address of the master, {match[1]}, is a placeholder of an example",
            (record.proof(match, "the address of rank 0's host"),),
            Fix(
                "give the address of rank 0's host, as `hostname -I` prints it there",
                command='export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)"  # Slurm',
            ),
            Place(variable="MASTER_ADDR", rank=record.rank, host=record.node),
        )
