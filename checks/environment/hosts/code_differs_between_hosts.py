"""The training's own files are not the same on all hosts.

## What happens

A file was changed on one host and not copied to the others. Ranks that run different code call different collectives,
and hang; or they train different models and nobody is told.

## How to be sure

`sha256sum train.py` on each host. `ddpdoctor check -- COMMAND` on all hosts compares the Python files that the command
names, and those in the same folder and below.

## How to mend it

Copy the folder anew: `rsync -a --delete ./ HOST:$PWD/`, or put it on a file system that all hosts share.

## Versions and sources

Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

from ..._cluster import groups

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host


AILMENT = Ailment("DDP104", Severity.ERROR)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare each file; only among hosts that were told of files."""
    for name in sorted({name for host in cluster.hosts for name in host.code}):
        values = groups(cluster.hosts, partial(_value, name))
        if len(values) < 2:  # noqa: PLR2004 - to differ takes two
            continue
        (_, same), (_, others), *_ = values
        odd = others[0]
        yield Finding(
            f"{name} differs: {_said(values)}",
            tuple(
                Evidence(f"{name}: {value}", "the same on all hosts", host.place)
                for value, hosts in values
                for host in hosts[:4]
            ),
            Fix(
                "copy the folder anew",
                command=f"rsync -a --delete ./ {odd.name}:$PWD/   # on {same[0].name}, in that folder",
            ),
            Place(file=name, host=odd.name),
            severity=None,
        )


def _said(values: list[tuple[str, list[Host]]]) -> str:
    return "; ".join(f"{value or 'not set'} on {', '.join(host.name for host in hosts[:8])}" for value, hosts in values)


def _value(name: str, host: Host) -> str | None:
    return host.code.get(name, "missing") if host.code else None
