"""What ``ddpdoctor run`` wrote into the logs of several hosts when one was cut off."""

from __future__ import annotations

import re

from ddpdoctor.check import RANKS, Ambiguity, Finding, Fix, Log, Record

OF_ITS_OWN = (
    r"ddpdoctor: error DDP343 peer-connection-lost: (?:(?P<card>[\w.@-]+), the interface of this host at "
    r"(?P<own>[\w.:]+), is down|no interface of this host has (?P<lost>[\w.:]+))[^\n]*"
)
OF_A_PEER = (
    r"ddpdoctor: error DDP343 peer-connection-lost: (?P<peer>[\w.:-]+) "
    r"(?:has stopped answering(?:: (?P<arp>no host in the network))?|(?P<small>answers small packets))[^\n]*"
)
ALIVE = rf"{RANKS}|ddpdoctor: error DDP343 peer-connection-lost: "
UNTIL_THE_END = "both hosts reach each other until the training ends"


def of_its_own(record: Record, match: re.Match[str]) -> Finding:
    """Return what the watch said of its own host."""
    return Finding(
        f"{match['card']}, the interface with the address {match['own']}, went down in the training"
        if match["card"]
        else f"a host lost its address {match['lost']} in the training",
        (record.proof(match, UNTIL_THE_END),),
        Fix(
            "see to that host and its interface, and start anew",
            command="ip -brief address; journalctl -k | tail -50   # there",
        ),
        record.place,
    )


def of_a_peer(record: Record, match: re.Match[str], log: Log) -> Finding:
    """Return what the watch said of another host; one whose own watch goes on is not down."""
    address = match["peer"]
    is_up = bool(match["small"]) or _tells_more(record, log)
    return Finding(
        f"{address} answered small packets, and acknowledged nothing of what the ranks of this host sent"
        if match["small"]
        else f"{address} stopped answering in the training: "
        + (
            "no host answered to that address any more (ARP)"
            if match["arp"]
            else "nothing of what this host sent was acknowledged"
        ),
        (record.proof(match, UNTIL_THE_END),),
        Fix("see to that host and the network to it, and start anew", command=f"ping -c 3 {address}"),
        record.place,
        ambiguity=_of_absence(address, is_up=is_up) if match["arp"] else _of_silence(address, is_up=is_up),
    )


def _tells_more(record: Record, log: Log) -> bool:
    """Whether another host went on after that: its watch has said what its ranks wait for."""
    return any(each.source != record.source for each, _ in log.find(ALIVE))


def _of_absence(address: str, *, is_up: bool) -> Ambiguity:
    return Ambiguity(
        (
            *(() if is_up else (f"the host {address} is down, frozen or asleep",)),
            "its cable, or a switch on the way, is out, or it was moved to another network",
            f"it has lost the address {address}",
        ),
        "ip -brief address; ip -brief link   # on that host",
    )


def _of_silence(address: str, *, is_up: bool) -> Ambiguity:
    return Ambiguity(
        (
            *(() if is_up else (f"the host {address} is down or frozen",)),
            "the network to it broke, in one direction at least, or a firewall drops what it let in before",
            "large packets are lost (MTU)",
        ),
        f"ping -c 3 {address}; ping -c 3 -M do -s 1472 {address}",
    )
