"""What is told of a host that does not answer the ranks of this one: lost by size, or never reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, place

from ....collectives.hangs._told import seen

if TYPE_CHECKING:
    from ddpdoctor.check import Peer, Stalled


def answers_small_ones(event: Stalled, gone: Peer, waits: str, unacked: Evidence) -> Finding:
    """Return that a host is up, and the way to it too, and that what the ranks send there is lost."""
    first = event.ranks[0]
    card = gone.interface or "eth0"
    return Finding(
        f"{gone.peer} answers small packets, and acknowledges nothing of what the ranks of this host send: large "
        f"packets are lost (MTU), or this connection alone; {waits}",
        (unacked, Evidence(f"{gone.peer} answers", "", "connect(), one small packet"), *seen(event)),
        Fix(
            f"on all hosts, give {card} the size that passes, or let large packets pass on the way: `ddpdoctor check` "
            "on all hosts finds that size",
            command=f"sudo ip link set dev {card} mtu 1400",
        ),
        place(first.site, rank=first.rank),
        ambiguity=Ambiguity(
            (
                "something on the way drops large packets: a tunnel, a VPN or a switch with a smaller MTU",
                "a firewall or a NAT on the way has forgotten this connection",
            ),
            f"ping -c 3 -M do -s 1472 {gone.peer}; ping -c 3 -M do -s 1172 {gone.peer}   # the second alone: MTU",
        ),
    )


def left(event: Stalled, gone: Peer, waits: str) -> Finding:
    """Return that nobody in this network has the address of a host any more: no firewall and no MTU does that."""
    first = event.ranks[0]
    return Finding(
        f"{gone.peer} has stopped answering: no host in the network of {gone.interface or gone.local} answers to that "
        f"address any more (ARP); {waits}",
        (
            Evidence(f"no hardware address of {gone.peer}", "one, however busy its host is", "/proc/net/arp"),
            *(
                [Evidence(f"{gone.unacked} bytes to it, sent again {gone.tries} times", "acknowledged", gone.local)]
                if gone.unacked
                else []
            ),
            *seen(event),
        ),
        Fix(
            f"see to the host {gone.peer}, its cable and its port of the switch, and start anew",
            command=f"ping -c 3 {gone.peer}; ip neighbour show {gone.peer}",
        ),
        place(first.site, rank=first.rank),
        ambiguity=Ambiguity(
            (
                f"the host {gone.peer} is down, frozen or asleep",
                "its cable, or a switch on the way, is out, or it was moved to another network",
                f"it has lost the address {gone.peer}",
            ),
            "ip -brief address; ip -brief link   # on its console, when it is back",
        ),
    )


def never_reached(event: Stalled, gone: Peer, waits: str) -> Finding:
    """Return that a rank tries to reach another one, whose address it was told, and no packet comes back."""
    first = event.ranks[0]
    if gone.stand:
        causes: tuple[str, ...] = (
            f"a firewall on {gone.peer}, or between, lets some ports through and not this one",
            f"a firewall on {gone.peer}, or between, lets so many connections of one host through and no more",
        )
        tell = f"sudo nft list ruleset; sudo iptables -S   # on {gone.peer}: ports, and connlimit or 'ct count over'"
    else:
        causes = (
            f"a firewall on {gone.peer}, or between, drops the packets",
            f"no host has {gone.peer}: the name of the rank's host resolves to an old address",
            f"{gone.peer} is an interface that is not connected with this host",
        )
        tell = f"ping -c 3 {gone.peer}; nc -zv -w 5 {gone.peer} {gone.connecting}"
    several = "s" * (gone.stand > 1)
    return Finding(
        f"no connection to {gone.peer}: this host has tried port {gone.connecting} there {gone.tries + 1} times, and "
        f"nothing comes back; {waits}",
        (
            Evidence(
                f"{gone.tries + 1} packets to {gone.peer}:{gone.connecting}, no answer",
                "a connection, or a refusal, at once",
                f"from {gone.local} ({gone.interface or 'no interface'})",
            ),
            *(
                [Evidence(f"{gone.stand} other connection{several} to {gone.peer}", "", "established, of these ranks")]
                if gone.stand
                else []
            ),
            *seen(event),
        ),
        Fix(
            f"open all TCP ports between this host and {gone.peer}"
            + (
                ", for as many connections as there are pairs of ranks"
                if gone.stand
                else "; if no host has that address, correct what its name resolves to there, or GLOO_SOCKET_IFNAME"
            ),
            command="ddpdoctor check -- torchrun ...   # on each host, with its own options: names the host",
        ),
        place(first.site, rank=first.rank),
        ambiguity=Ambiguity(causes, tell),
    )
