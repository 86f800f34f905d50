"""The first transfer between two GPUs never ends.

## What happens

The driver reports peer access, NCCL sets up its channels ("via P2P/IPC", "Init COMPLETE"), and the first transfer
never ends, with GPUs at 100 %. With PCIe ACS or an IOMMU between the GPUs the packets do not reach their target; on
consumer cards (RTX 4090) some drivers offer what the cards cannot do. No error is printed. The first words are the
watchdogs' time-outs, for SeqNum 1 or 2, of all ranks.

## How to be sure

With `NCCL_P2P_DISABLE=1` the same training runs. CUDA's simpleP2P sample, or nccl-tests, hang without it.

NCCL 2.31 and newer test each pair of GPUs themselves, with NCCL_RUN_DIAGNOSTICS=1: "NCCL DIAG [INFO] p2p: read
mismatch" names the pair whose transfers come out wrong. AMD's RCCL warns where the kernel was started without it:
"Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!". Many hosts run all the same.

## How to mend it

Set NCCL_P2P_DISABLE=1, which helps at once. For full bandwidth, turn ACS off on the PCIe bridges (BIOS, or setpci),
turn the IOMMU off or into passthrough (`iommu=pt`), or install a newer driver.

## Versions and sources

Holds for torch 2.2 to 2.13, on hosts with several GPUs. Source: NCCL documentation, "Diagnostics", and
"Troubleshooting", "PCI Access Control Services (ACS)"; NVIDIA/nccl-tests issue 117.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ._watchdog import IOMMU, Timeout, on_timeout, story_of

AILMENT = Ailment("DDP724", Severity.ERROR)
FIX = Fix("let NCCL go through host memory", command="export NCCL_P2P_DISABLE=1")
PASS_THROUGH = Fix(
    "let NCCL go through host memory; for full bandwidth start the kernel with the IOMMU in pass-through",
    command="export NCCL_P2P_DISABLE=1\ncat /proc/cmdline   # then, on each host:\n"
    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && sudo update-grub   # and reboot",
)
UNSET = "the IOMMU leads peer-to-peer transfers astray: the kernel was started without iommu=pt, as RCCL warns"
ASTRAY = "peer-to-peer transfers go astray (PCIe ACS, IOMMU, a card that cannot do them)"


@on_timeout(Timeout.TRANSPORT)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Several ranks wait in the group's first collective, over channels that NCCL set up as peer-to-peer."""
    story, warned = story_of(log), log.first(IOMMU)
    yield Finding(
        f"{story.waiting}, the group's first: the transfer between the GPUs did not end",
        (*story.evidence, *((warned[0].proof(warned[1], "iommu=pt: the IOMMU in pass-through"),) if warned else ())),
        PASS_THROUGH if warned else FIX,
        record.place,
        ambiguity=Ambiguity(
            (UNSET if warned else ASTRAY, "a rank that printed nothing was busy or dead"),
            "NCCL_P2P_DISABLE=1 torchrun ...   # runs: it was the transfer",
        ),
    )


@log_pattern(
    r"NCCL DIAG \[INFO\] p2p: (read|write) mismatch srcRank=(\d+) [^\n]{0,60}?dstRank=(\d+) "
    r"(?:[^\n]{0,60}?path=(\w+))?"
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


@log_pattern(r"NCCL DIAG \[INFO\] p2p: (?:only )?(\d+)/(\d+) (?:GPU-to-GPU peer accesses|directed GPU P2P edges)")
def in_the_sum_of_diagnostics(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read how many ways between GPUs failed; lines above it name them, and say how."""
    yield Finding(
        f"{int(match[2]) - int(match[1])} of {match[2]} ways between two GPUs failed NCCL's test",
        (record.proof(match, f"{match[2]} of {match[2]}"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (ASTRAY, "a GPU's memory cannot be opened by its peer"), "grep 'NCCL DIAG .INFO. p2p' LOG_OF_RANK_0"
        ),
    )
