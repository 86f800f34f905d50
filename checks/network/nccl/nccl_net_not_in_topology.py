"""NCCL's search for rings and trees ends at a network adapter that its topology does not have.

## What happens

NCCL 2.25 and 2.26 join the ports of an adapter into one virtual adapter, and where their search finds no way they fall
back to the adapter with number 0, which then is not there: "Could not find NET with id 0". The group of those ranks is
not made, or the job stands still without an exception.

## How to be sure

The line stands in NCCL's own log, right below "Init START"; above it "Could not find a path for pattern".

## How to mend it

Use NCCL 2.27 or later, which torch 2.8 and later bring along; a container of a framework can bring its own. Until then
turn the joining of adapters off: `NCCL_NET_MERGE_LEVEL=LOC`; one report of it says that this was not enough. A
topology file that is set (`NCCL_TOPO_FILE`) has to describe this host.

## Versions and sources

Holds for NCCL 2.25 and 2.26, torch 2.7. Sources: NVIDIA/nccl#1748, NVIDIA-NeMo/Run#266; NCCL, src/graph/topo.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP339", Severity.ERROR)


@log_pattern(r"NCCL WARN Could not find NET with id (?P<number>\w+)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the adapter that is not there."""
    yield Finding(
        f"NCCL's search asks for network adapter {match['number']}, which its picture of this host does not have",
        (record.proof(match, "an adapter that NCCL has found on this host"),),
        Fix(
            "use NCCL 2.27 or later (torch 2.8); until then do not let it join adapters",
            command='python -c "import torch; print(torch.__version__, torch.cuda.nccl.version())"\n'
            "export NCCL_NET_MERGE_LEVEL=LOC",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "NCCL 2.25 or 2.26 joined the ports of an adapter, and its fallback takes the number of before",
                "NCCL_TOPO_FILE describes another machine",
                "the container does not show all adapters of this host",
            ),
            "env | grep NCCL_TOPO; ls /sys/class/infiniband; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH torchrun ... "
            "2>&1 | grep -E 'NCCL version|NET/|pattern'",
        ),
    )
