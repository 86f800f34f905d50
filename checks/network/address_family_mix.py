"""The master's address and this host's interfaces are of different IP families.

MASTER_ADDR resolves to IPv6 addresses only, and this host has none but its loopback's (or the reverse): the store is
never reached. Where a name resolves to both, torch tries one after the other, and the warning "errno: 97 - Address
family not supported" or "errno: 99 - Cannot assign requested address" on the way is harmless.

To be sure: `getent ahosts "$MASTER_ADDR"` and `ip -brief address`.

Source: getaddrinfo(3); the warnings were seen in threads of torch 1.11 to 2.5. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.network import is_loopback

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP309", Severity.ERROR)


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
