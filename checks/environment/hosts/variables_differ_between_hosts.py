"""A variable of torch or NCCL that must be the same on all hosts differs.

## What happens

A variable was exported in one host's shell and not in another's; launchers pass on the environment of the host on which
they run, and not of the others. Where TORCH_DISTRIBUTED_DEBUG is DETAIL on one host only, its ranks do a collective
more than the others, and all wait, for more than 25 minutes with torch 2.13. NCCL's algorithm, protocol and transport
must be the same, or its collectives hang or give wrong results.

## How to be sure

`env | grep -E '^(NCCL|TORCH)_'` on each host. `ddpdoctor check` on all hosts compares them. Variables that each host
has of its own, such as NCCL_SOCKET_IFNAME, are left out.

## How to mend it

Set them in the launch command, for all hosts alike: `mpirun -x NAME=VALUE`, `srun --export=ALL,NAME=VALUE`.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch's distributed_c10d.py, `_create_process_group_wrapper`; NCCL documentation,
"Environment Variables".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe, shell_quote

from ..._cluster import groups

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host


AILMENT = Ailment("DDP103", Severity.WARNING)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare each variable; a variable that is set on some hosts only differs."""
    for name in sorted({name for host in cluster.hosts for name in host.variables}):
        values = groups(cluster.hosts, partial(_value, name))
        if len(values) < 2:  # noqa: PLR2004 - to differ takes two
            continue
        (usual, _), (_, others), *_ = values
        odd = others[0]
        yield Finding(
            f"{name} differs: {_said(values)}",
            tuple(
                Evidence(f"{name}={value}", "the same on all hosts", host.place)
                for value, hosts in values
                for host in hosts[:4]
            ),
            Fix(
                f"set {name} alike on all hosts",
                command=f"export {name}={shell_quote(usual)}   # on {odd.name}"
                if usual
                else f"unset {name}   # on {odd.name}",
            ),
            Place(variable=name, host=odd.name),
            severity=Severity.ERROR if name == "TORCH_DISTRIBUTED_DEBUG" else None,
        )


def _said(values: list[tuple[str, list[Host]]]) -> str:
    return "; ".join(f"{value or 'not set'} on {', '.join(host.name for host in hosts[:8])}" for value, hosts in values)


def _value(name: str, host: Host) -> str | None:
    return host.variables.get(name, "")
