"""The master's address and this host's interfaces are of different IP families.

## What happens

MASTER_ADDR resolves to IPv6 addresses only, and this host has no IPv6 address but that of its loopback interface; or
the same with IPv4. The ranks of this host never reach the store of rank 0, and wait until their time-out.

Where a name resolves to both families, torch tries one address after the other. The warnings "errno: 97 - Address
family not supported" and "errno: 99 - Cannot assign requested address" that it prints on the way are harmless.

## How to be sure

Compare `getent ahosts "$MASTER_ADDR"` with `ip -brief address` on the host that cannot connect: they have no family
in common. ddpdoctor makes the same comparison. It counts only interfaces that are up and not virtual, and leaves out
loopback and link-local addresses.

## How to mend it

Best first: set MASTER_ADDR on all hosts to an address of rank 0's host, of the family that all hosts have. Or give
this host an address of the missing family. Or let the name resolve to both families, in the DNS or in /etc/hosts.

## Versions and sources

Holds for torch 2.2 to 2.13. The harmless warnings were seen in threads of torch 1.11 to 2.5. Source: getaddrinfo(3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, is_loopback, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP309", Severity.ERROR)


@probe
def families(facts: Facts) -> Iterator[Finding]:
    """Compare the families of the master's addresses with those that this host has."""
    name = facts.environ.get("MASTER_ADDR")
    addresses = facts.network.resolve(name).addresses if name else ()
    if not addresses:
        raise NotRun("MASTER_ADDR is not set, or does not resolve")
    if any(facts.network.owns(address) for address in addresses):
        return
    ours = [
        address
        for each in facts.network.interfaces
        if each.up and not each.virtual
        for address in each.addresses
        if not is_loopback(address) and not address.lower().startswith("fe80:")
    ]
    wanted, there = {":" in address for address in addresses}, {":" in address for address in ours}
    if ours and not wanted & there:
        family = "IPv6" if True in wanted else "IPv4"
        yield Finding(
            f"MASTER_ADDR={name} has {family} addresses only, and this host has none",
            (Evidence(f"{', '.join(addresses)}; here {', '.join(ours)}", "a family in common", "getaddrinfo"),),
            Fix("use an address of the family that all hosts have", command=f"getent ahosts {name}; ip -brief address"),
            Place(variable="MASTER_ADDR", host=facts.network.hostname),
        )
