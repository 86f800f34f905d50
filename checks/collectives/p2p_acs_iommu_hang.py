"""The first transfer between two GPUs never ends.

The driver reports peer access, NCCL sets up its channels ("via P2P/IPC", "Init COMPLETE"), and the first transfer
spins for ever, GPUs at 100 %: with PCIe ACS or an IOMMU between the GPUs the packets go astray; on consumer cards
(RTX 4090) some drivers offer what the cards cannot do. No error is printed; the watchdogs' time-outs, for SeqNum 1 or
2, are the first words, of all ranks.

How to be sure: with `NCCL_P2P_DISABLE=1` the same training runs. CUDA's simpleP2P sample, or nccl-tests, hang without
it.

NCCL 2.31 and newer test each pair of GPUs themselves, with NCCL_RUN_DIAGNOSTICS=1: "NCCL DIAG [INFO] p2p: read
mismatch" names the pair whose transfers come out wrong.

How to mend it: NCCL_P2P_DISABLE=1 at once; for speed, ACS off on the PCIe bridges (BIOS, or setpci), IOMMU off or in
passthrough (`iommu=pt`), a newer driver.

Holds for torch 2.2 to 2.13, on hosts with several GPUs. Source: NCCL documentation, "Diagnostics", and
"Troubleshooting", "PCI Access Control Services (ACS)"; NVIDIA/nccl-tests issue 117.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Finding, Fix, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

from ._waits import STUCK
from ._watchdog import AFTERMATH, BESIDE, Kind, told

CARD = Card("DDP724", Severity.ERROR)
FIX = Fix("let NCCL go through host memory", command="export NCCL_P2P_DISABLE=1")
ASTRAY = "peer-to-peer transfers go astray (PCIe ACS, IOMMU, a card that cannot do them)"


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
            FIX,
            record.place,
            doubt=Doubt(
                (
                    ASTRAY,
                    "a rank that printed nothing was busy or dead",
                ),
                "NCCL_P2P_DISABLE=1 torchrun ...   # runs: it was the transfer",
            ),
        )


@sign(
    r"NCCL DIAG \[INFO\] p2p: (read|write) mismatch srcRank=(\d+) [^\n]{0,60}?dstRank=(\d+) "
    r"(?:[^\n]{0,60}?path=(\w+))?",
    explains=AFTERMATH,
)
def in_diagnostics(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the pair of GPUs that NCCL found when the group was made."""
    path = f" over {match[4]}" if match[4] else ""
    yield Finding(
        f"what rank {match[2]}'s GPU {'reads from' if match[1] == 'read' else 'writes to'} the GPU of rank {match[3]}"
        f"{path} is not what comes out",
        (record.proof(match, "the data that was sent"),),
        FIX,
        record.place,
    )


@sign(
    r"NCCL DIAG \[INFO\] p2p: (?:only )?(\d+)/(\d+) (?:GPU-to-GPU peer accesses|directed GPU P2P edges)",
    role=Role.SYMPTOM,
    explains=AFTERMATH,
)
def in_the_sum_of_diagnostics(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read how many ways between GPUs failed; lines above it name them, and say how."""
    yield Finding(
        f"{int(match[2]) - int(match[1])} of {match[2]} ways between two GPUs failed NCCL's test",
        (record.proof(match, f"{match[2]} of {match[2]}"),),
        FIX,
        record.place,
        doubt=Doubt(
            (ASTRAY, "a GPU's memory cannot be opened by its peer"), "grep 'NCCL DIAG .INFO. p2p' LOG_OF_RANK_0"
        ),
    )
