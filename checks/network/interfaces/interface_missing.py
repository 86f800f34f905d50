"""A variable names a network interface that this host does not have.

## What happens

GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME and NCCL_SOCKET_IFNAME choose the network interface. If none matches, gloo raises
"Unable to find address for: X", and NCCL reports "Bootstrap : no socket interface found" and ncclInvalidUsage; before
2.14 also "connecting to address ... with family 59936 is neither AF_INET(2) nor AF_INET6(10)". For
NCCL_OOB_NET_IFNAME the words are "no device found matching ..., verify NCCL_OOB_NET_IFNAME". A frequent cause: names
differ between hosts, eth0 on one is ens5 on another.

NCCL_COMM_ID names an address instead, and NCCL takes the interface in the same network: "No interface found in the same
subnet as remote address" where there is none, as in a container.

NCCL reads a list of prefixes, with `=` for exact names and `^` to exclude; gloo reads exact names.

## How to be sure

`ip -brief address` lists the interfaces; the one that the variable names is missing, is down or has no address.
ddpdoctor compares the variables with the interfaces that are up and have an address. NCCL's variable only matters
where there are GPUs, and is a note on a host without.

## How to mend it

Best first: set the variable on each host to an interface that exists there, for example
`export GLOO_SOCKET_IFNAME=ens5`. Or let NCCL choose: `unset NCCL_SOCKET_IFNAME`. Where the names differ between
hosts, set the variable on each host for itself, not once in the launch script. `unset NCCL_COMM_ID`: torch hands the
address of each group from rank to rank itself.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Choosing the network interface to use"; NCCL
documentation, "NCCL_SOCKET_IFNAME".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    nccl_interfaces,
    probe,
)

from ..._hosts.hosts import routable_interfaces
from ._named import missing, usable

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP303", Severity.ERROR)
GLOO = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
NCCL = "NCCL_SOCKET_IFNAME"
SETTING = r"NCCL_SOCKET_IFNAME set (?:by environment )?to (\S+)"
SUBNET = r"No interface found in the same subnet as remote address (?P<address>\S+?)<"


@probe
def by_their_names(facts: Facts) -> Iterator[Finding]:
    """Compare the names with the interfaces that are up and have an address."""
    if not any(facts.environ.get(name) for name in (*GLOO, NCCL)):
        raise NotRun("no variable names an interface")
    for variable in GLOO:
        if name := missing(facts, variable):
            yield _finding(facts, variable, name)
    setting = facts.environ.get(NCCL, "")
    if setting and not nccl_interfaces(usable(facts), setting):
        yield _excluded(facts, setting) if setting.startswith("^") else _finding(facts, NCCL, setting.lstrip("^="))


def _excluded(facts: Facts, setting: str) -> Finding:
    """Return that nothing is left; what keeps the first interface that is not loopback is to go."""
    there_are = usable(facts)
    wanted = next((each for each in there_are if each != "lo"), "lo")
    kept = [each for each in setting.removeprefix("^").removeprefix("=").split(",") if _may_stay(setting, wanted, each)]
    sign = "^=" if setting.startswith("^=") else "^"
    fix = f"export {NCCL}={sign}{','.join(kept)}" if kept else f"export {NCCL}={wanted}"
    return Finding(
        f"{NCCL}={setting} excludes all interfaces of this host: {', '.join(there_are)}",
        (Evidence(f"{NCCL}={setting}", f"one of {', '.join(there_are)} is left", "interfaces that are up"),),
        Fix(f"leave {wanted} to NCCL", command=fix),
        Place(variable=NCCL, host=facts.network.hostname),
        severity=None if facts.gpus.devices else Severity.NOTE,
    )


def _may_stay(setting: str, wanted: str, name: str) -> bool:
    """Whether a name may stay: it does not exclude the wanted interface, by its beginning or, after ``=``, as it is."""
    return bool(name) and (wanted != name if setting.startswith("^=") else not wanted.startswith(name))


def _finding(facts: Facts, variable: str, name: str) -> Finding:
    value, there_are = facts.environ[variable], usable(facts)
    there = any(each.name == name for each in facts.network.interfaces)
    outside = [*routable_interfaces(facts.network), *(each for each in there_are if each != "lo")]
    others = [each for each in outside if not _is_excluded(value, each)] or ["lo"]
    close = others if value.startswith("^") else difflib.get_close_matches(name, there_are, n=1) or others
    problem = "is down or has no address" if there else "matches no interface of this host"
    return Finding(
        f"{variable}={value}: {name!r} {problem}{_sign(variable, value)}",
        (Evidence(f"{variable}={value}", f"one of {', '.join(there_are)}", "interfaces that are up"),),
        Fix("name one that is there", command=f"export {variable}={close[0]}"),
        Place(variable=variable, host=facts.network.hostname),
        severity=Severity.NOTE if variable == NCCL and not facts.gpus.devices else None,
    )


def _is_excluded(value: str, interface: str) -> bool:
    """Whether what stands behind ``^`` excludes an interface, as NCCL would read it."""
    names = [name for name in value.removeprefix("^").removeprefix("=").split(",") if name]
    return value.startswith("^") and any(map(interface.startswith, names))


def _sign(variable: str, value: str) -> str:
    """Return what a sign before the name means, which is NCCL's language; empty without one."""
    if variable in GLOO and value[:1] in {"^", "="}:
        return f"; {value[0]} is a sign of {NCCL} alone, and {variable} takes names as they are"
    return "; = asks for the whole name" if value.startswith("=") else ""


@log_pattern(
    r"Bootstrap : no socket interface found|No usable listening interface found"
    r"|with family \d+ is neither AF_INET\(\d+\) nor AF_INET6\(\d+\)"
    r"|no device found (?:matching|after excluding) (?P<oob>\S.*), verify NCCL_OOB_NET_IFNAME",
    context=(SETTING, SUBNET),
)
def in_logs_of_nccl(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """NCCL found no interface of the wanted name; without a name it would have taken loopback."""
    if log.first(SUBNET):  # the name is not at fault: NCCL looked for an address
        return
    setting = log.first(SETTING)
    value = match.groupdict()["oob"] or (setting[1][1] if setting else "")
    variable = "NCCL_OOB_NET_IFNAME" if match.groupdict()["oob"] else NCCL
    yield Finding(
        f"{variable}={value} matches no interface of this host"
        if value
        else f"NCCL found no interface to use: {variable} matches none of this host",
        (
            record.proof(match, "the name of an interface that is up"),
            *((setting[0].proof(setting[1]),) if setting else ()),
        ),
        Fix("name one that is there, or leave the choice to NCCL", command=f"ip -brief address; unset {variable}"),
        Place(variable=variable, rank=record.rank, host=record.node),
    )


@log_pattern(SUBNET)
def of_an_address(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL looks for an interface by the network of an address only where NCCL_COMM_ID is set."""
    yield Finding(
        f"NCCL_COMM_ID names {match['address']}, and no interface of this host is in its network",
        (record.proof(match, "an address in a network of this host, or no NCCL_COMM_ID"),),
        Fix(
            "let torch hand the address on; where the ranks are in containers, give these the network of the host",
            command="unset NCCL_COMM_ID; ip -brief address\ndocker run --network=host ...   # containers of hosts",
        ),
        Place(variable="NCCL_COMM_ID", rank=record.rank, host=record.node),
    )


@log_pattern(r"(?P<host>rp != nullptr\. )?Unable to find address for:? (?P<name>[^\s;]+)")
def in_logs_of_gloo(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo names the interface that it looked for; in the other place of its code it is a host."""
    if match["host"]:
        return
    yield Finding(
        f"gloo finds no address on interface {match['name']}, which GLOO_SOCKET_IFNAME or the host's name leads to"
        f"{_sign(GLOO[0], match['name'])}",
        (record.proof(match, "an interface that is up and has an address"),),
        Fix("name one that is there", command="ip -brief address; export GLOO_SOCKET_IFNAME=eth0   # one of these"),
        Place(variable=GLOO[0], rank=record.rank, host=record.node),
    )
