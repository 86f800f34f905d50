"""How the links between hosts are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Link


def seen(cluster: Cluster, links: Iterable[Link]) -> Iterator[str]:
    """Yield a line for each link."""
    for link in links:
        source, target = cluster.hosts[link.source], cluster.hosts[link.target]
        yield f"{source.name} to {target.name} at {link.address} ({link.use}): {link.state}"
