"""NVSHMEM cannot set up its transport between GPUs (DeepEP and others).

## What happens

Libraries for mixtures of experts (DeepEP) communicate by NVSHMEM, over InfiniBand or RoCE and from within GPU kernels
(IBGDA). What NCCL works with is not enough for it: the driver must map the network card for the GPU, and the queues
must connect. "Unable to initialize any transports. returning error", "ibgda.cpp:3025: non-zero status: 7", "connect
EPS failed". "neither nv_peer_mem, or nvidia_peermem detected" names the reason: no kernel module lets the card read the
GPU's memory. "[GPU 3] Peer GPU 8 is not accessible": the two have neither peer access nor a transport over a card.
"init failed for transport: IBGDA" alone is no failure where another transport takes over.

Before any transport the processes meet (the bootstrap), by a socket of an interface that NVSHMEM chooses for itself:
"non-zero status: 7 bootstrap_init failed".

## How to be sure

NVSHMEM_DEBUG=INFO names the transports that were tried, and the bootstrap's interface. `ibv_devinfo` must list the
cards within the container, and `lsmod | grep peermem` on the host the module.

## How to mend it

On the host, `sudo modprobe nvidia-peermem`. Give the container /dev/infiniband and memlock; load the driver with
`NVreg_EnableStreamMemOPs=1` and `NVreg_RegistryDwords="PeerMappingOverride=1;"` for IBGDA. On RoCE set
NVSHMEM_IB_GID_INDEX as NCCL_IB_GID_INDEX. Within one host without such cards, NVSHMEM_REMOTE_TRANSPORT=none. For the
bootstrap, NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME as NCCL_SOCKET_IFNAME, and one version of NVSHMEM on all hosts.

## Versions and sources

Holds for NVSHMEM 3.1 to 3.4 and DeepEP 1.0 to 1.2. Source: NVSHMEM, src/host/transport and src/modules/transport;
DeepEP, third-party/README.md; pytorch/pytorch#170479, deepseek-ai/DeepEP#150.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP328", Severity.ERROR)
NO_MODULE = r"neither nv_peer_mem,? or nvidia_peermem detected"
NO_PEER = r"\[GPU (?P<gpu>\d+)\] Peer GPU (?P<peer>\d+) is not accessible"
BOOTSTRAP = r"non-zero status: \d+:? {0,3}(?:nvshmemi_)?bootstrap_?\w{0,20} failed"
OF_CARDS = (
    "the process sees no network card for RDMA (container without /dev/infiniband)",
    "the driver does not map the card for the GPU (IBGDA needs PeerMappingOverride)",
    "the cards' address is not the one to use (RoCE: NVSHMEM_IB_GID_INDEX)",
)
OF_PEERS = (
    "both are GPUs of one host, without peer access: other PCIe switches, or a process that sees its own GPU only"
)


@log_pattern(
    r"nvshmemi_transport_init:\d+: Unable to initialize any transports"
    r"|(?:/transport\.cpp|/init\.cu|(?P<module>ibgda|ibrc)\.cpp):\d+: non-zero status: (?P<status>\d+)"
    r"(?!:? {0,3}(?:nvshmemi_)?bootstrap)",
    context=(NO_MODULE, NO_PEER),
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
    apart = log.first(NO_PEER)
    between = f"between GPU {apart[1]['gpu']} and GPU {apart[1]['peer']}" if apart else "between the GPUs"
    yield Finding(
        f"NVSHMEM has no transport {between}{module}",
        (
            record.proof(match, "a transport that starts and connects"),
            *((apart[0].proof(apart[1]),) if apart else ()),
        ),
        Fix(
            "give the processes the network cards and the driver's options that IBGDA needs",
            command="ibv_devinfo | head; cat /proc/driver/nvidia/params | grep -E 'StreamMemOPs|RegistryDwords'\n"
            "docker run --device /dev/infiniband --ulimit memlock=-1 --cap-add IPC_LOCK ...",
        ),
        Place(rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            (*OF_CARDS, *((OF_PEERS,) if apart else ())),
            "ibv_devinfo; NVSHMEM_DEBUG=INFO torchrun ... 2>&1 | grep -iE 'transport|ibgda|ibrc' | head -20",
        ),
    )


@log_pattern(BOOTSTRAP)
def before_a_transport(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The processes have not met at all: no card and no driver is asked yet."""
    yield Finding(
        "the processes of NVSHMEM did not meet: its bootstrap failed, before any transport was tried",
        (record.proof(match, "a socket from each process to the first one's"),),
        Fix(
            "name the interface that leads to the other hosts, and use one version of NVSHMEM on all of them",
            command="export NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=$NCCL_SOCKET_IFNAME   # on each host\n"
            "nvshmem-info -a | head -n 5; find / -name 'libnvshmem_host.so*' 2>/dev/null",
        ),
        Place(rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            (
                "the bootstrap took an interface that the other hosts do not reach, or a firewall closes its port",
                "the hosts, or the package and the system, have other versions of NVSHMEM",
                "a process of the group was not started, or failed before",
            ),
            "NVSHMEM_DEBUG=INFO NVSHMEM_DEBUG_SUBSYS=BOOTSTRAP torchrun ... 2>&1 | grep -i bootstrap | head -20",
        ),
    )
