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

from ddpdoctor.check import IMPORTED, Ailment, Finding, Fix, Place, Severity, probe

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
            _of_package(each.name.partition(IMPORTED)[0], each.odd)
            if IMPORTED in each.name
            else Fix(
                "copy the folder anew",
                command=f"rsync -a --delete ./ {each.odd.name}:$PWD/   # on {each.same.name}, in that folder",
            ),
            Place(file=None if IMPORTED in each.name else each.name, host=each.odd.name),
            severity=None,
        )


def _of_package(name: str, host: Host) -> Fix:
    return Fix(
        f"give all hosts the same {name}: copy its folder anew, or have PYTHONPATH lead to one that all of them share",
        command=f'python -c "import {name}; print({name}.__file__)"   # on each host: the copy that is imported, on '
        f"{host.name} an odd one",
    )


def _value(name: str, host: Host) -> str | None:
    """Return what a host has of a file; None where it was told of no file, or has that package from elsewhere."""
    package, imported, _ = name.partition(IMPORTED)
    if not host.code or (imported and not any(each.startswith(f"{package}{IMPORTED}") for each in host.code)):
        return None
    return host.code.get(name, "missing")
