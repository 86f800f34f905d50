"""The hosts have different versions of Python, torch, CUDA or NCCL.

## What happens

Two hosts were installed at different times, or run different containers. Ranks of different torch or NCCL versions do
not always understand each other: NCCL refuses ("mismatched versions"), gloo hangs, a pickled object of one is not known
to the other, and results differ in the last digits.

## How to be sure

`python -c "import torch; print(torch.__version__, torch.version.cuda)"` on each host. `ddpdoctor check` on all hosts
compares them, without importing torch.

## How to mend it

Install the same on all hosts: one container image, or one file of pinned versions.

## Versions and sources

Holds for all versions. Source: NCCL's src/init.cc ("mismatched versions").
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

from ..._cluster import groups

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host


AILMENT = Ailment("DDP102", Severity.WARNING)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare each version; only among hosts that have it: no torch at all is told by the host itself."""
    for name in sorted({name for host in cluster.hosts for name in host.versions}):
        values = groups(cluster.hosts, partial(_value, name))
        if len(values) < 2:  # noqa: PLR2004 - to differ takes two
            continue
        (usual, same), (_, others), *_ = values
        odd = others[0]
        yield Finding(
            f"{name} differs: {_said(values)}",
            tuple(
                Evidence(f"{name} is {value}", "the same on all hosts", host.place)
                for value, hosts in values
                for host in hosts[:4]
            ),
            Fix(
                f"install the same {name} on all hosts",
                command=f"pip install '{name}=={usual}'   # on {odd.name}"
                if name == "torch"
                else f"pip freeze   # on {odd.name} and on {same[0].name}",
            ),
            Place(host=odd.name),
            severity=Severity.ERROR if name in ("torch", "NCCL", "CUDA of torch") else None,
        )


def _said(values: list[tuple[str, list[Host]]]) -> str:
    return "; ".join(f"{value or 'not set'} on {', '.join(host.name for host in hosts[:8])}" for value, hosts in values)


def _value(name: str, host: Host) -> str | None:
    return host.versions.get(name)
