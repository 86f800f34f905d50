"""The name of this host does not resolve.

gloo then warns "Unable to resolve hostname to a (local) address. Using the loopback address as fallback", which works
on one host and leaves the ranks of other hosts without a way to this one. torchrun's c10d rendezvous compares host
names and addresses to find out whether this host is to open the store, and fails after 60 s on all hosts.

To be sure: `getent hosts $(hostname)`.

An error where several hosts take part, else a note. A look-up that takes longer than 3 s counts as none: each process
group would wait for it. Source: torch's ProcessGroupGloo::createDefaultDevice (torch 2.2 to 2.13).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.network import several_hosts

from ._hosts import routable_interfaces

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP302", Severity.ERROR)


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
