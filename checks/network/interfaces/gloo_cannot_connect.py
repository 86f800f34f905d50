"""gloo cannot connect two ranks of this host over the interface that it chooses here.

## What happens

gloo takes the address of the interface that GLOO_SOCKET_IFNAME names, else the one that the host name resolves to.
Two ranks of this host cannot connect over that address, but they can over loopback. Each process group of gloo then
fails or waits for its time-out.

Usual causes: a host name that resolves to an address that the host does not have (a floating IP, an old lease); a
firewall between local addresses. Of an interface that does not exist, interface-missing tells.

## How to be sure

ddpdoctor starts two ranks with the settings of this environment, as a training does, and gives them 15 s to meet in a
barrier. Then it runs the same job over loopback. To verify, run `ddpdoctor check --only gloo-cannot-connect` again
after `export GLOO_SOCKET_IFNAME=lo`: the same job passes.

## How to mend it

- Training on one host: `export GLOO_SOCKET_IFNAME=lo`.
- Training on several hosts: on each host set GLOO_SOCKET_IFNAME to the interface that reaches the others
  (`ip -brief address` lists them), or correct the entry of the host name in /etc/hosts or in the DNS.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupGloo::createDefaultDevice ("Choosing the network interface to
use").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Place,
    Raised,
    Returned,
    Severity,
    Stuck,
    gloo_address,
    probe,
    several_hosts,
)

from ._named import missing

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, Jobs

AILMENT = Ailment("DDP310", Severity.ERROR)


@probe
def as_a_training_would(facts: Facts, jobs: Jobs, backends: tuple[str, ...]) -> Iterator[Finding]:
    """Connect two ranks over the interface that gloo chooses, and over loopback."""
    if "gloo" not in backends:
        raise NotRun("--backend leaves gloo out")
    setting = facts.environ.get("GLOO_SOCKET_IFNAME")
    if missing(facts, "GLOO_SOCKET_IFNAME"):
        raise NotRun("GLOO_SOCKET_IFNAME names an interface that cannot be used: interface-missing tells")
    outcomes = jobs.run(meet, ranks=2, environ={"GLOO_SOCKET_IFNAME": setting}, deadline=15)
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Returned)]
    if not failed or not all(isinstance(outcome, Returned) for outcome in jobs.run(meet, ranks=2)):
        return  # where loopback fails too, the check gloo-collectives-fail tells
    chosen = f"GLOO_SOCKET_IFNAME={setting}" if setting else f"the host name, {gloo_address(facts.network, None)}"
    said = next(
        (f"{each.kind}: {' '.join(each.message.split())[:300]}" for each in failed if isinstance(each, Raised)), ""
    )
    if not said:
        said = "no connection within 15 s" if isinstance(failed[0], Stuck) else "the rank died"
    yield Finding(
        f"two ranks of this host cannot connect over {chosen}",
        (Evidence(said, "they connect, as they do over loopback", f"rank {failed[0].rank}"),),
        _between_hosts(gloo_address(facts.network, setting))
        if several_hosts(facts.environ)
        else Fix("for one host, use loopback", command="export GLOO_SOCKET_IFNAME=lo"),
        Place(variable="GLOO_SOCKET_IFNAME", host=facts.network.hostname),
    )


def _between_hosts(address: str | None) -> Fix:
    """Return what mends it where the ranks of other hosts come to that address as well: loopback would cut them off."""
    return Fix(
        "let this host reach itself at the address to which the others come: see what its firewall does with packets "
        "from its own address",
        command=f"sudo iptables -I INPUT -s {address} -d {address} -j ACCEPT"
        if address and ":" not in address
        else "sudo iptables -S INPUT; sudo nft list ruleset",
    )


def meet() -> None:
    """Wait for each other, in a rank."""
    import torch.distributed as dist

    dist.barrier()
