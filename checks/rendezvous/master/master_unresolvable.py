"""MASTER_ADDR is no address, and no name that resolves.

## What happens

Every rank but the first waits for the store at MASTER_ADDR and fails after minutes: "The client socket has failed to
connect to any network address of (X, 29500)". Usual causes: a placeholder of an example (`<master-ip>`, `$MASTER`); a
URL, or a port within the address; a host's short name that only its own cluster resolves; a netmask. A name of digits
alone is read as a number: `05` becomes 0.0.0.5.

## How to be sure

Run `getent hosts "$MASTER_ADDR"` on each host: it prints an address where the name is right. ddpdoctor judges the
shape of the value first, then looks it up on this host; `ddpdoctor run` looks the name up at which ranks wait in
init_process_group. In logs it reads "cannot be retrieved (gai error: ...)" and
reports it where torch gave up; torch tries again, so the line alone is harmless.

## How to mend it

Best first: set MASTER_ADDR to the address of rank 0's host, as `hostname -I` prints it there; on one host
`export MASTER_ADDR=127.0.0.1`. Or add the name to the DNS or to /etc/hosts of each host. The port belongs in
MASTER_PORT. Under torchrun with `--rdzv_backend=c10d` neither MASTER_ADDR nor an address in --rdzv_endpoint helps: the
node of rank 0 tells the others its own full host name, unless `torchrun --local-addr` gives an address in its place.

## Versions and sources

Holds for torch 2.2 to 2.13; --local-addr measured with 2.13. Sources: torch.distributed documentation, "Environment
variable initialization"; torch's torch/distributed/elastic/rendezvous/api.py, `RendezvousStoreInfo`; inet_aton(3).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    HOST_LINE,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Host,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    Stalled,
    is_loopback,
    log_pattern,
    place,
    probe,
    several_hosts,
)

from ..._hosts.cluster import hosts_in
from ..._hosts.store import GAVE_UP, is_address
from ...collectives.hangs._hangs import on_hang
from ...collectives.hangs._kinds import Hang
from ...collectives.hangs._told import short

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP354", Severity.ERROR)
PLACEHOLDER = re.compile(r"[<>${}\s]")
UNFILLED = "holds characters that no address has: a placeholder that was not filled in"
SEVERAL = re.compile(r"\[?[\w.-]+(?:\[[\d,-]+\])?(?:,[\w.\[\]-]+)+|[\w.-]+\[[\d,-]+\]\S*")
SHAPES = (
    (SEVERAL, "names several hosts, and is to name that of rank 0 alone"),
    (re.compile(r"[a-z][a-z0-9+]*://", re.IGNORECASE), "is a URL: the address alone is to stand there"),
    (re.compile(r"\s[^<>${}\s]+\s*$|[^<>${}\s]+\s+$"), "has blanks around it"),
    (PLACEHOLDER, UNFILLED),
    (re.compile(r"[^:\[\]]+:\d+$"), "holds a port: MASTER_PORT is for that"),
    (re.compile(r"\d+$"), "is a number, which is read as an IPv4 address of its own (inet_aton)"),
    (re.compile(r"255\.|0\.0\.0\.0$"), "is a mask or the address of no host"),
)
ON_ALL = (
    "export MASTER_ADDR=10.0.0.1   # as hostname -I prints it there; with torchrun --master_addr=10.0.0.1, and where "
    "its nodes meet by --rdzv_backend=c10d, --local-addr=10.0.0.2 on each host, its own address"
)


@probe
def as_it_is_written(facts: Facts) -> Iterator[Finding]:
    """Judge its shape, then look it up."""
    address = facts.environ.get("MASTER_ADDR")
    if not address:
        raise NotRun("MASTER_ADDR is not set")
    problem = next((text for pattern, text in SHAPES if pattern.match(address) or pattern.fullmatch(address)), "")
    problem = problem or (UNFILLED if PLACEHOLDER.search(address) else "")
    if not problem:
        found = facts.network.resolve(address)
        problem = f"does not resolve: {found.problem}" if not found.addresses else ""
    if problem:
        yield Finding(
            f"MASTER_ADDR={address!r} {problem}",
            (Evidence(address, "an address, or a name that resolves on each host", "MASTER_ADDR"),),
            _fix(address, facts),
            Place(variable="MASTER_ADDR"),
        )


def _fix(address: str, facts: Facts) -> Fix:
    if SEVERAL.fullmatch(address):
        first = (
            f"$(scontrol show hostnames {shlex.quote(address)} | head -1)"
            if "[" in address
            else address.partition(",")[0]
        )
        return Fix("take the first of them, on all hosts", command=f"export MASTER_ADDR={first}")
    if several_hosts(facts.environ):
        return Fix("set the address of the host of rank 0, on all hosts", command=ON_ALL)
    return Fix(
        "set the address of the host of rank 0; on one host its own",
        command="export MASTER_ADDR=127.0.0.1  # on several: $(ssh HOST-OF-RANK-0 hostname -I | cut -d' ' -f1)",
    )


@log_pattern(
    r"(?:ValueError|RuntimeError): host not found: (?P<why>Name or service not known|Temporary failure in name "
    r"resolution|No address associated with hostname|nodename nor servname provided, or not known)"
)
def in_logs_of_older_versions(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the words of torch before 1.9, which do not repeat the name."""
    yield Finding(
        f"MASTER_ADDR does not resolve on this host: {match['why']}",
        (record.proof(match, "an address"),),
        Fix(
            "give the master's address, or a name that this host knows; in Kubernetes the master's pod and its "
            "service have to be there before a worker asks for it",
            command='getent ahosts "$MASTER_ADDR"',
        ),
        Place(variable="MASTER_ADDR", rank=record.rank, host=record.node),
    )


@log_pattern(
    r"network addresses of \(([^,]+), (\d+)\) cannot be retrieved \(gai error: (-?\d+)",
    context=(GAVE_UP,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read that the resolver knows no such name; torch tries again, so without its giving up this is harmless."""
    if is_address(match[1]) or ("Error: The" not in record.text and not log.first(GAVE_UP)):
        return  # an IPv4 address has no IPv6 one: torch asks for both, and takes what there is
    yield Finding(
        f"{match[1]} does not resolve on this host",
        (record.proof(match, "an address"),),
        Fix(
            "give the master's address, or add its name here",
            command=f"getent ahosts {match[1]}",
        ),
        Place(variable="MASTER_ADDR", rank=record.rank, host=record.node),
    )


WAITS = r"nslookup: can't resolve '(?P<name>[\w.-]*(?:master|worker|launcher|node|rank|head)[\w.-]*)'"


@log_pattern(WAITS)
def as_a_pod_waited(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The pod of a job asks for the master's name until it is there; at the end of its log it still waits."""
    asked = [*log.find(WAITS)]
    if asked[0][0] is not record or len(asked) == 1 or log.lines_after(asked[-1][0]) > 1:
        return
    yield Finding(
        f"the pod waits for {match['name']}, a name that the cluster does not know",
        (record.proof(match, "an address"), asked[-1][0].proof(asked[-1][1])),
        Fix(
            "see whether that pod runs, and whether its headless service is there: pods find each other by it",
            command=f"kubectl get pods,svc -o wide | grep {match['name']}\n"
            f"kubectl describe pod {match['name']} | tail -n 20",
        ),
        Place(variable="MASTER_ADDR", rank=record.rank, host=record.node),
    )


@log_pattern(HOST_LINE)
def as_a_launcher_waited(record: Record, log: Log) -> Iterator[Finding]:
    """Read which hosts do not know the name of the place where torchrun's nodes meet."""
    hosts = [host for host in hosts_in(record, log) if host.launcher == "torchrun" and host.master]
    lost = [host for host in hosts if not host.master_at]
    if lost:
        names = ", ".join(host.name for host in lost[:8])
        yield Finding(
            f"{lost[0].master}, where torchrun's nodes meet, does not resolve on {names}",
            tuple(
                Evidence(
                    f"{host.name}: {host.master} is {host.master_at or 'unknown'}", "an address", "getaddrinfo there"
                )
                for host in hosts[:8]
            ),
            Fix(
                "give the address of that host in place of its name, or add the name on each host",
                command=f"torchrun ... --rdzv_endpoint={_known(lost[0], hosts)}:{lost[0].port}   # on all hosts",
            ),
            Place(variable="MASTER_ADDR", host=lost[0].name),
        )


def _known(lost: Host, hosts: list[Host]) -> str:
    """Return what another host takes the name for, unless that is loopback."""
    found = (text for host in hosts if host.master == lost.master for text in host.master_at.split())
    return next((text for text in found if not is_loopback(text)), "10.0.0.1")


@on_hang(Hang.UNRESOLVED)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Ranks wait in init_process_group for a store whose host has a name that this host does not know."""
    if not event.unresolved:
        return
    name, why = event.unresolved
    waiting = next(each for each in event.ranks if each.operation == "init_process_group")
    yield Finding(
        f"rank {waiting.rank} waits in init_process_group at {short(waiting.site)} for the store of {name}, which does "
        "not resolve on this host",
        (
            Evidence(f"{name}: {why}", "an address, or a name that resolves on each host", "getaddrinfo on this host"),
            Evidence("waits in init_process_group", "", f"rank {waiting.rank}, for {waiting.seconds:.0f} s"),
        ),
        Fix("give the address of the host of rank 0, on all hosts; on one host its own", command=ON_ALL),
        place(waiting.site, rank=waiting.rank),
    )
