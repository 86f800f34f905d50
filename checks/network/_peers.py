"""Who is at the other end of a connection, as far as a log tells."""

from __future__ import annotations

import ipaddress
import re

from ddpdoctor.explain.records import Log

BOOTSTRAP = (
    r"(?:Bootstrap ?: ?Using|NET ?: Using interface|NET/Socket ?: Using(?: \[\d+\])?) ?\[?\d*\]?(\S+?):([\d.]+)<"
)
GLOO_REFUSED = (
    r"(?:\bconnect \[(?P<old>[^\]\s]+)\]:\d+: Connection refused"
    r"|SO_ERROR: Connection refused, remote=\[(?P<new>[^\]\s]+)\])"
)
VIRTUAL = re.compile(r"docker|virbr|veth|br-|cni|flannel|cali|lxc|tun|tap|vmnet|vboxnet|podman")


def loopback(address: str) -> bool:
    """Say whether an address ends in the host it is used on."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def chosen(log: Log) -> tuple[str, str] | None:
    """Give NCCL's interface and address where the log shows a virtual one, or else the first."""
    all_ = [(found[1], found[2]) for _, found in log.find(BOOTSTRAP)]
    return next((each for each in all_ if virtual(*each)), all_[0] if all_ else None)


def virtual(name: str, address: str) -> bool:
    """Say whether other hosts cannot be behind this interface."""
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return bool(VIRTUAL.match(name))
    return bool(VIRTUAL.match(name)) or number.is_loopback or number.is_link_local


def name(log: Log, address: str) -> str:
    """Name the rank or host that said it uses this address, else the address."""
    for record, found in log.find(BOOTSTRAP):
        if found[2] == address and (record.rank is not None or record.node):
            return f"rank {record.rank} ({address})" if record.rank is not None else f"{record.node} ({address})"
    return address
