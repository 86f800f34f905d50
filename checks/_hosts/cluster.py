"""What hosts say of themselves, compared: of those that met, and of those whose logs alone came together."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from ddpdoctor.check import HOST_LINE, Host, Log, Record, host_from

Value = TypeVar("Value")

STARTED_WITH_AN_ADDRESS = {"by hand", "Slurm", "Open MPI", "MPICH", "MVAPICH", "PALS", "Flux"}
"""Those whose user gives each host MASTER_ADDR: torchrun's agents can meet at any host."""


def groups(hosts: Iterable[Host], of: Callable[[Host], Value | None]) -> list[tuple[Value, list[Host]]]:
    """Return the hosts by a value of theirs, the most frequent first; those without one are left out."""
    found: dict[Value, list[Host]] = {}
    for host in hosts:
        if (value := of(host)) is not None:
            found.setdefault(value, []).append(host)
    return sorted(found.items(), key=lambda each: -len(each[1]))


def hosts_in(record: Record, log: Log) -> tuple[Host, ...]:
    """Return the hosts whose lines the logs hold, each once; none but for the first of these lines."""
    found = list(log.find(HOST_LINE))
    if not found or found[0][0] is not record:
        return ()
    hosts: dict[str, Host] = {}
    for _, match in found:
        if (host := host_in(match)) is not None:
            hosts[host.name] = host
    return tuple(hosts.values())


def hosts_to_compare(record: Record, log: Log) -> tuple[Host, ...]:
    """Return the hosts whose lines the logs hold, if there are two at least."""
    hosts = hosts_in(record, log)
    return hosts if len(hosts) > 1 else ()


def host_in(match: re.Match[str]) -> Host | None:
    """Return the host that a line tells of; None where it cannot be read."""
    try:
        return host_from(json.loads(match[1])["host"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
