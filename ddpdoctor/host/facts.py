"""What is true of this host, gathered once and handed to the checks.

A check reads no ``os.environ`` and opens no ``/proc`` file: whoever hands in other facts shows it another world.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpdoctor.host.gpus import Gpus, gather_gpus
from ddpdoctor.host.limits import Limits, gather_limits
from ddpdoctor.host.network import Network, gather_network
from ddpdoctor.host.temporary import Temporary, gather_temporary
from ddpdoctor.host.versions import Versions, gather_versions

ASSUMED_RANKS = 2  # the fewest with which training is distributed


@dataclass(frozen=True, slots=True)
class Facts:
    """The environment variables, the planned number of ranks on this host, and the host itself."""

    environ: Mapping[str, str]
    ranks: int
    limits: Limits
    versions: Versions
    network: Network
    gpus: Gpus
    temporary: Temporary = field(default_factory=Temporary)

    @property
    def ranks_are_assumed(self) -> bool:
        """Whether nothing here says how many ranks there will be: no launcher's variable, and no GPUs."""
        return "LOCAL_WORLD_SIZE" not in self.environ and not self.gpus.devices and self.ranks == ASSUMED_RANKS


def gather(environ: Mapping[str, str] | None = None, ranks: int | None = None) -> Facts:
    """Look at this host.

    ``ranks`` is how many ranks the training will start here; None means LOCAL_WORLD_SIZE, else the number of
    GPUs, but at least two.
    """
    environ = dict(os.environ) if environ is None else dict(environ)
    gpus = gather_gpus(environ)
    return Facts(
        environ=environ,
        ranks=ranks or _planned_ranks(environ, len(gpus.devices)),
        limits=gather_limits(),
        versions=gather_versions(environ),
        network=gather_network(),
        gpus=gpus,
        temporary=gather_temporary(environ),
    )


def _planned_ranks(environ: Mapping[str, str], gpus: int) -> int:
    declared = environ.get("LOCAL_WORLD_SIZE", "")
    return (
        int(declared) if declared.isascii() and declared.isdigit() and int(declared) > 0 else max(ASSUMED_RANKS, gpus)
    )
