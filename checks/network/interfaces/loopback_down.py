"""The loopback interface is down or has no address.

## What happens

Ranks of one host meet over 127.0.0.1. Without it `torchrun --standalone` and MASTER_ADDR=127.0.0.1 fail with "Network
is unreachable" or wait for their time-out, and gloo raises "Unable to find address for: lo". Usual causes: a fresh
network namespace, a container that is started without a network, a sandbox.

## How to be sure

`ip -brief address show lo` prints "DOWN", or no 127.0.0.1. ddpdoctor looks for an interface that is up and has a
loopback address. While there is none, no job over gloo can run here; the checks that need one say so.

## How to mend it

Bring the interface up with `ip link set lo up`, as root in the network namespace of the training. In a container or a
sandbox where this is forbidden, start it with a network.

## Versions and sources

Holds for torch 2.2 to 2.13, on Linux. Seen with torch 2.13 (CPU build).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP311", Severity.ERROR)


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
