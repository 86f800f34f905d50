"""Who is at the other end of a connection, as far as a log tells."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from ddpdoctor.check import Log, Record

CLOSED = (
    r"Call to (?:recv|send)(?: from| to)?(?: (?P<nccl>[^\s<]+)<\d+>)? failed ?: [^\n]{0,12}"
    r"(?:Broken pipe|Connection reset)"
    r"|[Cc]onnection closed by remote peer(?: (?P<remote>[^\s<]+)<\d+>)?"
    r"|[Cc]onnect (?:to (?P<refused>[^\s<]+)<\d+> )?(?:failed|returned|timeout)[ :]{1,3}Connection refused"
    r"(?!, retrying)|socket(?:Start|Poll)Connect: exceeded retries"
    r"|(?<!worker )Connection closed by peer \[(?P<gloo>[^\]\s]+)\]"
    r"|(?:readv?|writev?|Read error|Write error) \[(?P<tcp>[^\]\s]+)\]:\d+: (?:Connection reset by peer|Broken pipe"
    r"|(?P<net>Connection timed out|No route to host|Network is unreachable|Software caused connection abort))"
)
BOOTSTRAP = r"(?:Bootstrap ?: ?Using|NET ?: Using interface|NET/Socket ?: Using) ?(?=\S)"
INTERFACE = re.compile(r"(?:\[\d+\])?([A-Za-z][\w.@-]*):([\d.]+)<\d")
GLOO_REFUSED = (
    r"(?:\bconnect \[(?P<old>[^\]\s]+)\]:\d+: Connection refused"
    r"|SO_ERROR: Connection refused, remote=\[(?P<new>[^\]\s]+)\])"
)
VIRTUAL = re.compile(r"docker|virbr|veth|br-|cni|flannel|cali|lxc|tun|tap|vmnet|vboxnet|podman")


def loopback(address: str) -> bool:
    """Whether an address ends in the host it is used on."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def interfaces(log: Log) -> Iterator[tuple[Record, re.Match[str]]]:
    """Yield the interfaces that NCCL says it uses: their names and addresses, one after the other."""
    for record, found in log.find(BOOTSTRAP):
        for each in INTERFACE.finditer(record.text, found.end()):
            yield record, each


def dead_end(log: Log, peer: str | None) -> tuple[Record, re.Match[str]] | None:
    """Find an interface of NCCL's that ends in its host, and through which it would reach this peer."""
    for record, found in interfaces(log):
        if virtual(found[1], found[2]) and (peer is None or _in_one_network(found[2], peer)):
            return record, found
    return None


def hosts(log: Log) -> frozenset[str]:
    """Return the name of the hosts whose NCCL has spoken of its interfaces."""
    return frozenset(record.node for record, _ in log.find(BOOTSTRAP) if record.node)


def virtual(name: str, address: str) -> bool:
    """Whether other hosts cannot be behind this interface."""
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return bool(VIRTUAL.match(name))
    return bool(VIRTUAL.match(name)) or number.is_loopback or number.is_link_local


def name(log: Log, address: str) -> str:
    """Return the name of the rank or host that said it uses this address, else the address."""
    for record, found in interfaces(log):
        if found[2] == address and (record.rank is not None or record.node):
            return f"rank {record.rank} ({address})" if record.rank is not None else f"{record.node} ({address})"
    return address


def _in_one_network(one: str, other: str) -> bool:
    """Whether two addresses share their first 16 bits, as those of a bridge do."""
    try:
        return ipaddress.ip_address(other) in ipaddress.ip_network(f"{one}/16", strict=False)
    except ValueError:
        return True  # a host's name: nothing speaks against it
