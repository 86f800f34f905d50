"""The folder with the training's data is not the same on all hosts.

## What happens

Each host reads a copy of its own, and one copy is not complete, or is of another version. A DistributedSampler hands
out numbers of samples: with fewer samples on one host its ranks take fewer steps, and the others wait in the
collective that it left out, until the time-out; or a rank asks for a sample that its host has not. Files of other
sizes train on other data, and nobody is told.

## How to be sure

`ddpdoctor check --data FOLDER` on all hosts compares names and sizes of the files; above 400 files, the number and
the sum of each subfolder. Hidden files, locks and caches are left out. By hand: `find FOLDER -type f | sort | md5sum`
on each.

## How to mend it

`rsync -a --delete FOLDER/ HOST:FOLDER/` from the host that is complete, or read from a file system that all share.
Where each host is to have a part of its own, do not name the folder.

## Versions and sources

Holds for all versions of torch. Source: torch/utils/data/distributed.py: `num_samples` comes from `len(dataset)` of
the rank itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, probe

from ..._hosts.cluster import groups

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host

AILMENT = Ailment("DDP140", Severity.ERROR)
SHOWN = 6
MISSING = "missing"


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare each file, or each subfolder."""
    asked = [host for host in cluster.hosts if host.data_folder]
    if not asked:
        raise NotRun("several hosts compare the folder that --data names")
    unread = [host for host in asked if host.data_problem]
    read = [host for host in asked if not host.data_problem]
    if unread and read:
        yield _unread(unread, read)
    names = sorted({name for host in read for name in host.data})
    differing = [(name, values) for name in names if len(values := groups(read, partial(_value, name))) > 1]
    if differing:
        yield _finding(differing)


def _unread(unread: list[Host], read: list[Host]) -> Finding:
    odd, whole = unread[0], read[0]
    return Finding(
        f"{odd.place} does not read {odd.data_folder}: {odd.data_problem}",
        (
            *(Evidence(each.data_problem, "the files", each.place) for each in unread[:SHOWN]),
            Evidence(f"{len(whole.data)} entries", "the same on all hosts", whole.place),
        ),
        Fix("mount or copy the folder there", command=f"ls -la {odd.data_folder}   # on {odd.name}"),
        Place(file=odd.data_folder, host=odd.name),
    )


def _finding(differing: list[tuple[str, list[tuple[str, list[Host]]]]]) -> Finding:
    name, values = differing[0]
    (usual, same), (other, others), *_ = values
    odd, whole = (others[0], same[0]) if usual != MISSING else (same[0], others[0])
    seen = other if odd is others[0] else usual
    more = f", and {len(differing) - 1} more differ" if len(differing) > 1 else ""
    there = f"has {whole.data[name]} on {whole.place}"
    return Finding(
        f"{name} of {odd.data_folder} is {_said(seen)} on {odd.place}, and {there}{more}",
        tuple(
            Evidence(f"{each}: {value}", "the same on all hosts", f"{folder_host.place}, {folder_host.data_folder}")
            for each, kinds in differing[:SHOWN]
            for value, hosts in kinds
            for folder_host in hosts[:2]
        ),
        Fix(
            "copy the folder anew from the host that is complete",
            command=f"rsync -a --delete {whole.data_folder}/ {odd.name}:{odd.data_folder}/   # on {whole.name}",
        ),
        Place(file=odd.data_folder, host=odd.name),
    )


def _said(value: str) -> str:
    return value if value == MISSING or value.startswith("a broken") else f"of {value}"


def _value(name: str, host: Host) -> str | None:
    return host.data.get(name, MISSING)
