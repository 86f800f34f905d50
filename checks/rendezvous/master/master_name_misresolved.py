"""The master's host name leads to an address that does not answer.

## What happens

The launcher passed a host's name as MASTER_ADDR, the name resolves, and nobody answers at that address: "The client
socket has failed to connect to node-03:52873 (errno: 110 - Connection timed out)" or 113, no route. The name stands for
an interface that the others cannot reach, an old entry of /etc/hosts or DNS, or, on one host, for an address that the
host no longer has.

## How to be sure

`getent ahosts node-03` on both hosts, next to `ip -brief address` on the master.

## How to mend it

Pass the address of the interface that the hosts share; on one host, localhost. Errno 111 is another
matter: there the host answers, and nobody listens yet (master-unreachable).

## Versions and sources

Source: connect(2), getaddrinfo(3); torch/csrc/distributed/c10d/socket.cpp. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ..._hosts.store import C10D_STORE, ERRNO, GAVE_UP, is_name, is_number, is_placeholder, is_this_host

AILMENT = Ailment("DDP358", Severity.ERROR)
SILENT = {"110", "113", "60", "65", "10060", "10065"}  # timed out, no route: Linux, macOS, Windows


@log_pattern(GAVE_UP, context=(ERRNO, C10D_STORE))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See whether a name was tried, and no host answered."""
    host = match[1]
    numbers = {found[2] for each, _ in log.find(ERRNO) for found in re.finditer(ERRNO, each.text)}
    if not is_name(host) or is_number(host) or is_placeholder(host) or is_this_host(host):
        return
    if not numbers & SILENT or log.first(C10D_STORE):
        return
    yield Finding(
        f"nobody answers at the address that {host} resolves to, port {match[2]}",
        (record.proof(match, "the address of an interface that all hosts reach"),),
        Fix(
            "pass the master's address in place of its name; on one host, localhost",
            command=f"getent ahosts {host}   # next to: ip -brief address, on the master",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                f"{host} resolves to an address of another interface, or to an old one",
                "a firewall drops connections to the port",
                "the master's host is down",
            ),
            f"getent ahosts {host}; nc -zv -w 5 {host} {match[2]}   # from here, while rank 0 is starting",
        ),
    )
