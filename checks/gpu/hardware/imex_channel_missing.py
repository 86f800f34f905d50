"""NCCL cannot use the NVLink between hosts: the processes have no IMEX channel.

## What happens

In racks such as GB200 NVL72 the GPUs of several hosts are one NVLink domain. Memory is shared through the service
nvidia-imex and the devices /dev/nvidia-caps-imex-channels/channelN, which a container has to be given. Without them
NCCL stops: "Cuda failure 800 'operation not permitted'", then "MNNVL (cliqueSize 8) is available but not working on
this system. Check the IMEX channel configuration". It happens even where all ranks are on one host.

## How to be sure

`ls /dev/nvidia-caps-imex-channels` within the container, on each host; `nvidia-imex-ctl -N` shows whether the hosts'
daemons are connected.

## How to mend it

Create the channel on each host and hand it to the containers; in Kubernetes the DRA driver's ComputeDomain does
that. Until then NCCL_MNNVL_ENABLE=0: NCCL then uses the network between hosts, which is slower.

## Versions and sources

Holds for NCCL 2.25 to 2.28 on multi-node NVLink. Source: NCCL, src/mnnvl.cc; NVIDIA IMEX Service documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP241", Severity.ERROR)


@log_pattern(r"MNNVL \(cliqueSize (?P<size>\d+)\) is available but not working on this system")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL says what it tried, and what is missing."""
    yield Finding(
        f"NCCL has no IMEX channel for the NVLink domain of {match['size']} GPUs",
        (record.proof(match, "/dev/nvidia-caps-imex-channels/channel0 on each host, in each container"),),
        Fix(
            "create the channel on each host and give it to the containers",
            command="ls /dev/nvidia-caps-imex-channels || sudo nvidia-modprobe -s -i 0:1; nvidia-imex-ctl -N\n"
            "docker run --device /dev/nvidia-caps-imex-channels/channel0 ...\n"
            "export NCCL_MNNVL_ENABLE=0   # until then: NCCL leaves this NVLink out",
        ),
        Place(rank=record.rank, host=record.node),
    )
