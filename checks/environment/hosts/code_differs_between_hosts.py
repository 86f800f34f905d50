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
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Place, Severity, probe

from ._differ import differences

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host


AILMENT = Ailment("DDP104", Severity.ERROR)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare each file; only among hosts that were told of files."""
    for each in differences(cluster.hosts, lambda host: host.code, _value):
        yield Finding(
            each.message,
            each.evidence(": "),
            Fix(
                "copy the folder anew",
                command=f"rsync -a --delete ./ {each.odd.name}:$PWD/   # on {each.same.name}, in that folder",
            ),
            Place(file=each.name, host=each.odd.name),
            severity=None,
        )


def _value(name: str, host: Host) -> str | None:
    return host.code.get(name, "missing") if host.code else None
