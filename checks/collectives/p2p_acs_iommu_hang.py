"""The first transfer between two GPUs never ends.

The driver reports peer access, NCCL sets up its channels ("via P2P/IPC", "Init COMPLETE"), and the first transfer
spins for ever, GPUs at 100 %: with PCIe ACS or an IOMMU between the GPUs the packets go astray; on consumer cards
(RTX 4090) some drivers offer what the cards cannot do. No error is printed; the watchdogs' time-outs, for SeqNum 1 or
2, are the first words, of all ranks.

How to be sure: with `NCCL_P2P_DISABLE=1` the same training runs. CUDA's simpleP2P sample, or nccl-tests, hang without
it.

How to mend it: NCCL_P2P_DISABLE=1 at once; for speed, ACS off on the PCIe bridges (BIOS, or setpci), IOMMU off or in
passthrough (`iommu=pt`), a newer driver.

Holds for torch 2.2 to 2.13, on hosts with several GPUs. Source: NCCL documentation, "Troubleshooting", "PCI Access
Control Services (ACS)"; NVIDIA/nccl-tests issue 117.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Finding, Fix, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

from ._waits import STUCK
from ._watchdog import AFTERMATH, BESIDE, Kind, told

CARD = Card("DDP724", Severity.ERROR)


@sign(
    STUCK,
    role=Role.SYMPTOM,
    beside=BESIDE,
    explains=AFTERMATH,
)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Several ranks wait in the group's first collective, over channels that NCCL set up as peer-to-peer."""
    if story := told(record, log, Kind.TRANSPORT):
        yield Finding(
            f"{story.waiting}, the group's first: the transfer between the GPUs did not end",
            story.evidence,
            Fix("let NCCL go through host memory", command="export NCCL_P2P_DISABLE=1"),
            record.place,
            doubt=Doubt(
                (
                    "peer-to-peer transfers go astray (PCIe ACS, IOMMU, a card that cannot do them)",
                    "a rank that printed nothing was busy or dead",
                ),
                "NCCL_P2P_DISABLE=1 torchrun ...   # runs: it was the transfer",
            ),
        )
