"""What the environment says of this host's part in the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ddpdoctor.check import DEFAULT_PORT, read_launch

if TYPE_CHECKING:
    from ddpdoctor.check import Network

NOWHERE = {"0.0.0.0", "::"}  # noqa: S104 - addresses of no host


def holds_rank_zero(environ: Mapping[str, str]) -> bool | None:
    """Whether rank 0 runs on this host; None where the environment does not say."""
    launch = read_launch(environ)
    if launch.several and launch.node is not None:
        return launch.node == 0
    for name in ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID"):
        if environ.get(name, "").isdigit():
            return int(environ[name]) == 0
    rank, local, world, here = (
        _number(environ, name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    )
    if rank == 0:
        return True
    if rank is None or local is None or rank >= (world or rank + 1) or local >= (here or local + 1):
        return None
    return rank == local


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else None


def port(environ: Mapping[str, str]) -> int:
    """Return the master's port."""
    value = environ.get("MASTER_PORT", "")
    return int(value) if value.isascii() and value.isdigit() and 0 < int(value) < 1 << 16 else DEFAULT_PORT


def routable_interfaces(network: Network) -> tuple[str, ...]:
    """Return the name of the interfaces that other hosts could reach."""
    return tuple(
        each.name
        for each in network.interfaces
        if each.up and each.addresses and not each.loopback and not each.virtual
    )
