"""gloo or NCCL would use an interface that other hosts cannot reach.

docker0, virbr0 and their like are bridges inside this host, and loopback ends here. When NCCL or gloo takes one of them
for a training over several hosts, the peers connect to nowhere: "Call to connect failed: Connection timed out",
"connection refused", or silence until the time-out.

NCCL prefers InfiniBand, then any interface but loopback and docker*, in the kernel's order: virbr0 and br-* can come
first. gloo takes the address that the host name resolves to.

To be sure: `NCCL_DEBUG=INFO` prints "Bootstrap : Using <interface>:<address>".

Judged only where the environment says that several hosts take part. Source: NCCL documentation, "NCCL_SOCKET_IFNAME";
torch's ProcessGroupGloo::createDefaultDevice. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.network import gloo_address, nccl_interface, several_hosts

from ._hosts import routable_interfaces

CARD = Card("DDP304", Severity.ERROR)


@probe
def that_would_be_taken(facts: Facts) -> Iterator[Finding]:
    """Follow gloo's and NCCL's choice."""
    several = several_hosts(facts.environ)
    if not several:
        raise NotRun("the environment shows one host only")
    better = next(iter(routable_interfaces(facts.network)), None)
    nccl = nccl_interface(facts.network, facts.environ.get("NCCL_SOCKET_IFNAME")) if facts.gpus.devices else None
    address = gloo_address(facts.network, facts.environ.get("GLOO_SOCKET_IFNAME"))
    gloo = next((each for each in facts.network.interfaces if address in each.addresses), None)
    for variable, taken in (("NCCL_SOCKET_IFNAME", nccl), ("GLOO_SOCKET_IFNAME", gloo)):
        # A host name that resolves to loopback has a check of its own.
        named = bool(facts.environ.get(variable))
        if taken is not None and better and (taken.virtual or (taken.loopback and (named or variable[0] == "N"))):
            library = "NCCL" if variable[0] == "N" else "gloo"
            yield Finding(
                f"{library} would use {taken.name} ({', '.join(taken.addresses)}), which other hosts cannot reach",
                (Evidence(f"{taken.name}, with {several}", better, "interfaces and environment"),),
                Fix("name the interface to the other hosts", command=f"export {variable}={better}"),
                Place(variable=variable, host=facts.network.hostname),
            )
