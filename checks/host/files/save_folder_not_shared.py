"""Each host has a folder of its own where the training saves.

## What happens

The path is the same on all hosts, and leads to a local disk on each. Rank 0 saves on its host alone: a rank of
another host that loads what rank 0 has saved does not find it, or finds one of an earlier run, and trains on from
other weights. Where every rank writes its part of a checkpoint (torch.distributed.checkpoint), the parts lie apart,
and nobody can load them. Where rank 0 alone saves and loads, and the weights go to the others by DDP, nothing is
wrong: this is a note then.

## How to be sure

`ddpdoctor check --save-folder FOLDER` on all hosts: each writes a small file there and looks for those of the others.
By hand: `touch FOLDER/$(hostname)` on each, then `ls FOLDER`.

## How to mend it

Save to a file system that all hosts share. Or load on rank 0 alone, before DDP is made, which sends the weights to
the others; the optimizer's state has to be sent as well (`broadcast_object_list`).

## Versions and sources

Holds for all versions of torch. Source: torch/distributed/checkpoint/filesystem.py: each rank writes its own files,
rank 0 `.metadata`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, probe, targets

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster

AILMENT = Ailment("DDP172", Severity.NOTE)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Look whose file nobody else has found: an error where the source saves from every rank."""
    writing = [seat for seat, host in enumerate(cluster.hosts) if host.save and not host.save_problem]
    if len(writing) < 2:  # noqa: PLR2004 - to share takes two
        raise NotRun("several hosts try the folder that --save-folder names")
    writers = {*writing}
    pairs = [(one, other) for one in writing for other in targets(one, len(cluster.hosts)) if other in writers]
    seen = {*cluster.sees, *((other, one) for one, other in cluster.sees)}
    apart = [pair for pair in pairs if pair not in seen]
    if not apart:
        return
    one, other = (cluster.hosts[seat] for seat in apart[0])
    line = next((host.sharded for host in cluster.hosts if host.sharded), "")
    every = len(apart) == len(pairs)
    whose = "each host has a folder of its own" if every else f"{one.place} and {other.place} do not share the folder"
    yield Finding(
        f"{whose} at {one.save}" + (f", and {line} writes a part of each checkpoint on every rank" if line else ""),
        tuple(
            Evidence(
                "not found", f"the file that {cluster.hosts[b].name} wrote", f"{cluster.hosts[a].place}, {one.save}"
            )
            for a, b in apart[:6]
        ),
        Fix(
            "save to a file system that all hosts share, or load on rank 0 alone and send the state to the others",
            command=f"df -h {one.save}   # on each host: one device, with a server's name in front of it",
        ),
        Place(file=one.save, host=None if every else one.name),
        severity=Severity.ERROR if line else None,
    )
