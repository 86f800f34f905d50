"""gloo cannot connect two ranks of this host over the interface that it chooses here.

Two ranks connect with this environment's own settings, as a training would: GLOO_SOCKET_IFNAME, else the address that
the host name resolves to. Over loopback the same job works. Typical: an interface that is not there, a host name that
resolves to an address that the host does not have (a floating IP, an old lease), a firewall between local addresses.

To be sure: the pasted line makes the same job pass: `ddpdoctor check --only gloo-network`.

Source: torch's ProcessGroupGloo::createDefaultDevice ("Choosing the network interface to use"). Holds for torch 2.2 to
2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.network import gloo_address
from ddpdoctor.probe.outcome import Raised, Returned, Stuck

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.jobs import Jobs

CARD = Card("DDP310", Severity.ERROR)


@probe
def as_a_training_would(facts: Facts, jobs: Jobs, backends: tuple[str, ...]) -> Iterator[Finding]:
    """Connect two ranks over the interface that gloo chooses, and over loopback."""
    if "gloo" not in backends:
        raise NotRun("--backend leaves gloo out")
    setting = facts.environ.get("GLOO_SOCKET_IFNAME")
    outcomes = jobs.run(meet, ranks=2, environ={"GLOO_SOCKET_IFNAME": setting}, deadline=15)
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Returned)]
    if not failed or not all(isinstance(outcome, Returned) for outcome in jobs.run(meet, ranks=2)):
        return  # where loopback fails too, the check gloo-collectives tells
    chosen = f"GLOO_SOCKET_IFNAME={setting}" if setting else f"the host name, {gloo_address(facts.network, None)}"
    said = next(
        (f"{each.kind}: {' '.join(each.message.split())[:300]}" for each in failed if isinstance(each, Raised)), ""
    )
    if not said:
        said = "no connection within 15 s" if isinstance(failed[0], Stuck) else "the rank died"
    yield Finding(
        f"two ranks of this host cannot connect over {chosen}",
        (Evidence(said, "they connect, as they do over loopback", f"rank {failed[0].rank}"),),
        Fix("for one host, use loopback", command="export GLOO_SOCKET_IFNAME=lo"),
        Place(variable="GLOO_SOCKET_IFNAME", host=facts.network.hostname),
    )


def meet() -> None:
    """Wait for each other, in a rank."""
    import torch.distributed as dist

    dist.barrier()
