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
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Place, Severity, probe, shell_quote

from ._differ import differences

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host


AILMENT = Ailment("DDP103", Severity.WARNING)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare each variable; a variable that is set on some hosts only differs."""
    for each in differences(cluster.hosts, lambda host: host.variables, _value):
        yield Finding(
            each.message,
            each.evidence("="),
            Fix(
                f"set {each.name} alike on all hosts",
                command=f"export {each.name}={shell_quote(each.usual)}   # on {each.odd.name}"
                if each.usual
                else f"unset {each.name}   # on {each.odd.name}",
            ),
            Place(variable=each.name, host=each.odd.name),
            severity=Severity.ERROR if each.name == "TORCH_DISTRIBUTED_DEBUG" else None,
        )


def _value(name: str, host: Host) -> str | None:
    return host.variables.get(name, "")
