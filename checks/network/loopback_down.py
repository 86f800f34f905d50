"""The loopback interface is down or has no address.

Ranks of one host meet over 127.0.0.1: `torchrun --standalone` and MASTER_ADDR=127.0.0.1 fail with "Network
is unreachable" or wait for their time-out, and gloo raises "Unable to find address for: lo". Typical: a
fresh network namespace, a container that is started without a network, a sandbox.

To be sure: `ip -brief address show lo`.

While it is down, no job over gloo can run here; the checks that need one say so. Seen with torch 2.13 (CPU
build); holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP311", Severity.ERROR)


@probe
def interfaces(facts: Facts) -> Iterator[Finding]:
    """Look for an interface that is up and has a loopback address."""
    network = facts.network
    if not any(each.up and each.loopback and each.addresses for each in network.interfaces):
        seen = ", ".join(each.name for each in network.interfaces if each.up and each.addresses) or "none"
        yield Finding(
            "no loopback interface is up: ranks of this host cannot meet",
            (Evidence(f"interfaces with an address: {seen}", "lo with 127.0.0.1", "interfaces"),),
            Fix("bring it up", command="ip link set lo up"),
            Place(host=network.hostname),
        )
