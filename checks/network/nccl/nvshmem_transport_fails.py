"""NVSHMEM cannot set up its transport between GPUs (DeepEP and others).

## What happens

Libraries for mixtures of experts (DeepEP) communicate by NVSHMEM, over InfiniBand or RoCE and from within GPU kernels
(IBGDA). What NCCL works with is not enough for it: the driver must map the network card for the GPU, and the queues
must connect. "Unable to initialize any transports. returning error", "ibgda.cpp:3025: non-zero status: 7", "connect
EPS failed". "neither nv_peer_mem, or nvidia_peermem detected" names the reason: no kernel module lets the card read the
GPU's memory. "init failed for transport: IBGDA" alone is no failure where another transport takes over.

## How to be sure

NVSHMEM_DEBUG=INFO names the transports that were tried. `ibv_devinfo` must list the cards within the container, and
`lsmod | grep peermem` on the host the module.

## How to mend it

On the host, `sudo modprobe nvidia-peermem`. Give the container /dev/infiniband and memlock; load the driver with
`NVreg_EnableStreamMemOPs=1` and `NVreg_RegistryDwords="PeerMappingOverride=1;"` for IBGDA. On RoCE set
NVSHMEM_IB_GID_INDEX as NCCL_IB_GID_INDEX. Within one host without such cards, NVSHMEM_REMOTE_TRANSPORT=none.

## Versions and sources

Holds for NVSHMEM 3.1 to 3.4 and DeepEP 1.0 to 1.2. Source: NVSHMEM, src/host/transport and src/modules/transport;
DeepEP, third-party/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP328", Severity.ERROR)
NO_MODULE = r"neither nv_peer_mem,? or nvidia_peermem detected"


@log_pattern(
    r"nvshmemi_transport_init:\d+: Unable to initialize any transports"
    r"|(?:/transport\.cpp|/init\.cu|(?P<module>ibgda|ibrc)\.cpp):\d+: non-zero status: (?P<status>\d+)",
    context=(NO_MODULE,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the transport, where the line does, and the kernel module where NVSHMEM has missed it."""
    if missed := log.first(NO_MODULE):
        yield Finding(
            "NVSHMEM has no transport between the GPUs: no kernel module lets the network card read the GPU's memory",
            (record.proof(match, "a transport that starts and connects"), missed[0].proof(missed[1])),
            Fix(
                "load the module on each host, outside of the container",
                command="sudo modprobe nvidia-peermem && lsmod | grep peermem   # comes with the driver",
            ),
            Place(rank=record.rank, host=record.node),
        )
        return
    module = f" ({match['module']})" if match["module"] else ""
    yield Finding(
        f"NVSHMEM has no transport between the GPUs{module}",
        (record.proof(match, "a transport that starts and connects"),),
        Fix(
            "give the processes the network cards and the driver's options that IBGDA needs",
            command="ibv_devinfo | head; cat /proc/driver/nvidia/params | grep -E 'StreamMemOPs|RegistryDwords'\n"
            "docker run --device /dev/infiniband --ulimit memlock=-1 --cap-add IPC_LOCK ...",
        ),
        Place(rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            (
                "the process sees no network card for RDMA (container without /dev/infiniband)",
                "the driver does not map the card for the GPU (IBGDA needs PeerMappingOverride)",
                "the cards' address is not the one to use (RoCE: NVSHMEM_IB_GID_INDEX)",
            ),
            "ibv_devinfo; NVSHMEM_DEBUG=INFO torchrun ... 2>&1 | grep -iE 'transport|ibgda|ibrc' | head -20",
        ),
    )
