"""There is no network interface on which NCCL could open a socket.

## What happens

NCCL needs an IP socket even where all ranks are on one host. In a sandbox or container without network (`docker run
--network none`), or with IPv6 sockets on a kernel without IPv6, the call fails: "Socket creation failed : Address
family not supported by protocol" (NCCL before 2.23), "Call to socket failed: Address family not supported by
protocol" (since), and ncclSystemError follows.

## How to be sure

`ip -brief address` in the container. An interface that is up and has an address is needed; lo is
enough on one host.

## How to mend it

Give the container a network; on one host `NCCL_SOCKET_IFNAME=lo`; where only IPv4 works
`NCCL_SOCKET_FAMILY=AF_INET`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL, src/misc/socket.cc of versions 2.7 to 2.30; NCCL documentation,
"NCCL_SOCKET_FAMILY".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP335", Severity.ERROR)


@log_pattern(r"(?:Socket creation|Call to socket) failed ?: Address family not supported by protocol")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read NCCL's complaint about the address family."""
    yield Finding(
        "NCCL could open no IP socket: this host or container has no interface of the address family it asked for",
        (record.proof(match, "an interface that is up and has an IP address"),),
        Fix(
            "give it an interface; on one host loopback is enough",
            command="export NCCL_SOCKET_IFNAME=lo NCCL_SOCKET_FAMILY=AF_INET   # one host\n"
            "docker run --network host ...",
        ),
        record.place,
    )
