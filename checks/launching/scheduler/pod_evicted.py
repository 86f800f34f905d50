"""Kubernetes evicted a pod of the training.

## What happens

The kubelet ends pods when its node runs out of memory or disk, those first that use more than they requested: "The node
was low on resource: memory. Container pytorch was using 5053216Ki, which exceeds its request of 0", "Usage of EmptyDir
volume "dshm" exceeds the limit "1Gi"", "Pod ephemeral local storage usage exceeds the total limit of containers". The
status is Evicted, the other ranks lose their connections. It is no OOMKilled: there one container met its own limit.

## How to be sure

`kubectl describe pod NAME` has Reason: Evicted and the resource.

## How to mend it

Request what the training uses (requests equal to limits makes the pod the last to be evicted); write checkpoints to a
volume, not into the container; give /dev/shm an emptyDir of medium Memory with a sizeLimit that counts as memory.

## Versions and sources

Holds for Kubernetes 1.20 to 1.34, whatever the torch. Source: Kubernetes documentation, "Node-pressure Eviction".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP434", Severity.ERROR)
FIXES = {
    "memory": "request the memory that the training uses, as much as its limit",
    "shm": "give /dev/shm a larger emptyDir of medium Memory, and count it as memory",
    "disk": "write to a volume, and request the ephemeral storage that is used",
}


@log_pattern(
    r"The node was low on resource: (?P<resource>[\w-]+)|^\s*Reason: {1,20}(?P<plain>Evicted)\b"
    r"|Usage of EmptyDir volume \"(?P<volume>[^\"\n]+)\" exceeds the limit \"(?P<limit>[^\"\n]+)\""
    r"|(?P<disk>Pod ephemeral local storage usage exceeds the total limit)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the resource."""
    volume, resource = match["volume"], match["resource"]
    kind = "memory" if resource == "memory" or match["plain"] else "shm" if volume and "shm" in volume else "disk"
    what = f"volume {volume} grew over {match['limit']}" if volume else f"the node was low on {resource}"
    said = what if volume or resource else "it used more local storage than its limit" if match["disk"] else ""
    yield Finding(
        f"Kubernetes evicted a pod of the training{': ' if said else ''}{said}",
        (record.proof(match, "requests that cover what the training uses"),),
        Fix(
            FIXES[kind],
            command="kubectl describe pod NAME | grep -A3 -E 'Reason|Message'; kubectl get events --field-selector "
            "reason=Evicted",
        ),
        record.place,
    )
