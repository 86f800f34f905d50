"""Some hosts of the launch did not come to the master.

## What happens

The launch has more hosts than came: one was not started, crashed before it could come, or cannot reach the master.
torch waits for it, half an hour by default, and does not say which one is missing. torchrun's own wait, in which its
agents tell each other how many ranks each starts, ends after five minutes with "Socket Timeout" or "wait timeout".

## How to be sure

`ddpdoctor check` on all hosts waits for them (`--wait`), and says every ten seconds who is absent. Where a host cannot
reach the master, its own output says why.

## How to mend it

Look at the output of the host that did not come. If it runs another training, or none, start the check there.

## Versions and sources

Holds for all versions. With torch 2.13 one node of two that is missing leaves the other one silent for 30 minutes
(`init_process_group`'s default timeout of the store).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    WRONG_TOKEN,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Place,
    Record,
    Role,
    Severity,
    is_loopback,
    log_pattern,
    probe,
)

from ..._hosts.cluster import STARTED_WITH_AN_ADDRESS
from ..._hosts.hosts import NOWHERE
from ..._hosts.store import OF_AGENTS
from ._launcher import agents_apart

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host


AILMENT = Ailment("DDP365", Severity.ERROR)


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Count who came to the master."""
    if not cluster.met or len(cluster.hosts) >= cluster.expected:
        return
    if len({each.address for each in cluster.strangers if each.what == WRONG_TOKEN}) >= cluster.expected - len(
        cluster.hosts
    ):
        return  # they came, and belong to another job
    if cluster.hosts[0].master_at in NOWHERE:
        return  # master-unresolvable says so
    numbers = cluster.absent
    count = cluster.expected - len(cluster.hosts)
    named = f"host {', '.join(map(str, numbers[:20]))}" if len(numbers) == count else f"{count} hosts"
    first = cluster.hosts[0]
    came = ", ".join(host.place for host in cluster.hosts[:20])
    number = numbers[0] if numbers else 1
    if own := _own_address(first):
        yield _at_itself(first, own, f"{named} of {cluster.expected} did not come", f"{cluster.waited:.0f} s")
        return
    if loopback := _loopback(first):
        yield _at_loopback(first, loopback, f"{named} of {cluster.expected} did not come")
        return
    if cluster.half_open:
        yield _unanswered(cluster, f"{named} of {cluster.expected} did not come")
        return
    yield Finding(
        f"{named} of {cluster.expected} did not come to {first.master}:{first.port} within {cluster.waited:.0f} s",
        (Evidence(f"{came} came", f"{cluster.expected} hosts: {first.by}", "the meeting at the master's port"),),
        Fix(
            "see what the check says on the host that is missing",
            command=f"MASTER_ADDR={first.master} MASTER_PORT={first.port} NNODES={cluster.expected} NODE_RANK={number} "
            f"ddpdoctor check   # on host {number}"
            if first.launcher == "by hand"
            else f"ping -c 3 {first.master}   # on host {number}; then the same launch command",
        ),
        Place(host=str(number) if numbers else None),
        ambiguity=Ambiguity(
            (
                "nothing was started there",
                "it cannot reach the master: its own check says why",
                "it has another MASTER_ADDR or MASTER_PORT",
            ),
            f"nc -zv -w 5 {first.master} {first.port}   # on host {number}, while the master waits",
        ),
    )


def _unanswered(cluster: Cluster, missing: str) -> Finding:
    """Return that a host's packets come here, and the answers do not come there."""
    first, asking = cluster.hosts[0], cluster.half_open[0]
    return Finding(
        f"{missing}: {asking} asks for a connection to port {first.port}, and what {first.name} answers does not reach "
        "it",
        (
            Evidence(
                f"connections from {', '.join(cluster.half_open[:8])} half open (SYN-RECV)", "established", first.name
            ),
        ),
        Fix(
            f"let what {first.name} sends arrive there: see what a firewall there lets in, a router between them, "
            f"and the route on {first.name}",
            command=f"ip route get {asking}   # on {first.name}\n"
            f"sudo iptables -S INPUT; sudo nft list ruleset   # on {asking}",
        ),
        Place(host=first.name),
    )


def _own_address(host: Host) -> str:
    """Return the address of its own at which a host waits, though another one is host 0; torchrun's can meet there."""
    if not host.node or host.launcher not in STARTED_WITH_AN_ADDRESS:
        return ""
    return next((each for each in host.master_at.split() if each in host.addresses), "")


def _loopback(host: Host) -> str:
    """Return the loopback address at which a host waits for others, which cannot come there.

    A host's own name may lead there at home alone; and a Kubernetes operator may tell localhost to the first pod alone.
    """
    of_operator = host.launcher == "by hand" and host.by.startswith("WORLD_SIZE=")
    written = host.master == "localhost" or is_loopback(host.master)
    return host.master_at.partition(" ")[0] if written and not of_operator else ""


def _at_loopback(host: Host, loopback: str, missing: str) -> Finding:
    own = host.gloo if host.gloo and not is_loopback(host.gloo) else "10.0.0.1"
    return Finding(
        f"{missing}: MASTER_ADDR={host.master} is {loopback} on {host.name}, which no other host can reach",
        (Evidence(f"MASTER_ADDR={host.master} is {loopback}", f"an address of {host.name}, as {own}", host.name),),
        Fix(
            "set the address of host 0, the same on all hosts",
            command=f"mpirun -x MASTER_ADDR={own} ..." if host.launcher == "Open MPI" else f"export MASTER_ADDR={own}",
        ),
        Place(variable="MASTER_ADDR", host=host.name),
    )


def _at_itself(host: Host, own: str, missing: str, waited: str) -> Finding:
    return Finding(
        f"{missing} to {host.master}:{host.port} within {waited}: that is {host.place} itself, and rank 0 is on host 0",
        (Evidence(f"{host.master} is {own}, of {host.interface_of(own)}", "the address of host 0", host.name),),
        Fix(
            "set the address of host 0, the same on all hosts: a script that takes $(hostname -i) gives each its own",
            command='export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)   # on all hosts',
        ),
        Place(variable="MASTER_ADDR", host=host.name),
    )


@log_pattern(
    r"(?:DistStoreError|RuntimeError): (?:Socket Timeout|wait timeout after \d+ms, keys: /?\S*torchelastic/)",
    role=Role.GENERIC,
    waits=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Take a wait of torchrun's own, in which the nodes tell each other what they start."""
    if re.search(OF_AGENTS, record.text):
        yield agents_apart(record.proof(match, "the torchrun of each node leaves there what it starts"), record.place)
