"""Rank 0 runs on this host, and MASTER_ADDR is the address of another one.

Rank 0 opens the store on its own host; all ranks, itself included, look for it at MASTER_ADDR. They all wait until
their time-out. Typical: the address of an old allocation, the example's address, the second host of the list; or
loopback on a host that is not that of rank 0.

To be sure: `ip -brief address` on the host of rank 0.

An address that a load balancer or NAT brings to this host would be right: in Kubernetes this is not judged. Source:
torch.distributed documentation, "TCP initialization". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record
from ddpdoctor.probe.network import is_loopback

from ._hosts import holds_rank_zero, routable_interfaces
from ._store import GAVE_UP, is_placeholder

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP308", Severity.ERROR, known_as=("master-addr-wrong",))


@probe
def beside_rank_zero(facts: Facts) -> Iterator[Finding]:
    """Compare the master's addresses with this host's."""
    name, first = facts.environ.get("MASTER_ADDR"), holds_rank_zero(facts.environ)
    if not name or first is None or "KUBERNETES_SERVICE_HOST" in facts.environ:
        raise NotRun("the environment does not say where rank 0 runs")
    addresses = facts.network.resolve(name).addresses
    if not addresses:
        raise NotRun("MASTER_ADDR does not resolve")
    ours = routable_interfaces(facts.network)
    own = next((a for each in facts.network.interfaces if each.name in ours for a in each.addresses), "127.0.0.1")
    if first and not any(facts.network.owns(address) for address in addresses):
        yield Finding(
            f"rank 0 runs on this host, and MASTER_ADDR={name} is none of its addresses",
            (Evidence(f"{name} is {', '.join(addresses)}", f"one of this host's, as {own}", "getaddrinfo"),),
            Fix("set this host's address, on all hosts", command=f"export MASTER_ADDR={own}"),
            Place(variable="MASTER_ADDR", host=facts.network.hostname),
            severity=Severity.WARNING,
            doubt=Doubt(
                ("the address is wrong", "a NAT or load balancer brings it to this host"),
                f"nc -zv {addresses[0]} ${{MASTER_PORT:-29500}}   # while rank 0 is starting here",
            ),
        )
    elif not first and all(map(is_loopback, addresses)):
        yield Finding(
            f"rank 0 runs on another host, and MASTER_ADDR={name} is this one",
            (Evidence(f"{name} is {', '.join(addresses)}", "the address of the host of rank 0", "getaddrinfo"),),
            Fix(
                "set the address of the host of rank 0 on all hosts",
                command='export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)',
            ),
            Place(variable="MASTER_ADDR", host=facts.network.hostname),
        )


@sign(GAVE_UP, explains=("rdzv-host-not-recognised", "master-unresolvable", "missing-ranks-at-init"))
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look for an address that nobody has: a word of a README, a netmask, a range for documentation."""
    if is_placeholder(match[1]):
        yield Finding(
            f"the address of the master, {match[1]}, is a placeholder of an example",
            (record.proof(match, "the address of rank 0's host"),),
            Fix(
                "give the address of rank 0's host, as `hostname -I` prints it there",
                command='export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)"  # Slurm',
            ),
            Place(variable="MASTER_ADDR", rank=record.rank, host=record.node),
        )
