"""A variable names a network interface that this host does not have.

GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME and NCCL_SOCKET_IFNAME choose the interface. If none matches, gloo raises "Unable
to find address for: X", and NCCL "no socket interface found" (as "Bootstrap : no socket interface found" and
ncclInvalidUsage). Names differ between hosts: eth0 here is ens5 there.

NCCL reads a list of prefixes, with `=` for exact names and `^` to exclude; gloo reads exact names.

To be sure: `ip -brief address`.

Source: torch.distributed documentation, "Choosing the network interface to use"; NCCL documentation,
"NCCL_SOCKET_IFNAME". Holds for torch 2.2 to 2.13; NCCL's only matters where there are GPUs, and is else a note.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.network import wanted

CARD = Card("DDP303", Severity.ERROR)
GLOO = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
NCCL = "NCCL_SOCKET_IFNAME"


@probe
def by_their_names(facts: Facts) -> Iterator[Finding]:
    """Compare the names with the interfaces that are up and have an address."""
    if not any(facts.environ.get(name) for name in (*GLOO, NCCL)):
        raise NotRun("no variable names an interface")
    usable = tuple(each.name for each in facts.network.interfaces if each.up and each.addresses)
    for variable in GLOO:
        missing = [name for name in facts.environ.get(variable, "").split(",") if name and name not in usable]
        if missing:
            yield _finding(facts, variable, missing[0], usable)
    setting = facts.environ.get(NCCL, "")
    if setting and not wanted(usable, setting):
        yield _finding(facts, NCCL, setting.lstrip("^="), usable)


def _finding(facts: Facts, variable: str, name: str, usable: tuple[str, ...]) -> Finding:
    value = facts.environ[variable]
    there = any(each.name == name for each in facts.network.interfaces)
    close = difflib.get_close_matches(name, usable, n=1) or [each for each in usable if each != "lo"][:1] or ["lo"]
    problem = "is down or has no address" if there else "matches no interface of this host"
    return Finding(
        f"{variable}={value}: {name!r} {problem}",
        (Evidence(f"{variable}={value}", f"one of {', '.join(usable)}", "interfaces that are up"),),
        Fix("name one that is there", command=f"export {variable}={close[0]}"),
        Place(variable=variable, host=facts.network.hostname),
        severity=Severity.NOTE if variable == NCCL and not facts.gpus.devices else None,
    )
