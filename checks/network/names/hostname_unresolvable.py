"""The name of this host does not resolve.

## What happens

gloo cannot look up the address of its own host. It warns "Unable to resolve hostname to a (local) address. Using the
loopback address as fallback". That works on one host; the ranks of other hosts cannot reach this one. torchrun's c10d
rendezvous compares host names and addresses to decide which host opens the store, and fails after 60 s on all hosts.

## How to be sure

`getent hosts $(hostname)` prints nothing. ddpdoctor looks the name up in the same way, and counts a look-up that
takes longer than 3 s as failed, since each process group waits for it. It does not report hosts on which
GLOO_SOCKET_IFNAME is set. It is an error where several hosts take part, else a note.

## How to mend it

Best first: name the interface that reaches the other hosts, `export GLOO_SOCKET_IFNAME=eth0`. Or add the host's name
to /etc/hosts or to the DNS, with its address on the network. For a training on one host loopback is enough:
`echo "127.0.0.1 $(hostname)" | sudo tee -a /etc/hosts`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupGloo::createDefaultDevice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe, several_hosts

from ..._hosts.hosts import routable_interfaces

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP302", Severity.ERROR)


@probe
def by_its_name(facts: Facts) -> Iterator[Finding]:
    """Look the host's own name up."""
    network = facts.network
    if network.own.addresses or facts.environ.get("GLOO_SOCKET_IFNAME"):
        return
    interface = next(iter(routable_interfaces(network)), "lo")
    several = several_hosts(facts.environ)
    yield Finding(
        f"the host name {network.hostname!r} does not resolve: {network.own.problem}",
        (Evidence(network.own.problem, "an address of this host", f"getaddrinfo({network.hostname})"),),
        Fix(
            "name the interface, or add the host to /etc/hosts",
            command=f"export GLOO_SOCKET_IFNAME={interface}\n"
            f"# or: echo '127.0.0.1 {network.hostname}' | sudo tee -a /etc/hosts",
        ),
        Place(host=network.hostname),
        severity=Severity.ERROR if several else Severity.NOTE,
    )
