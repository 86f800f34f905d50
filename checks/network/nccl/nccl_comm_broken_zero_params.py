"""The ranks cannot talk to each other when DDP compares their models.

## What happens

"DDP expects same model across all ranks, but Rank 0 has 161 params, while rank 1 has inconsistent 0 params" looks
like a wrong model and is none. Before anything else DDP gathers the number of parameters of each rank. A buffer that
was never filled reads 0: the first collective of the process group did not work, or timed out while a rank was busy
elsewhere. Any other number than 0 is a real difference between the models.

## How to be sure

`ddpdoctor check`, whose check nccl-collectives-fail runs that collective alone; or run with
`NCCL_P2P_DISABLE=1`: if it then passes, the transport between the GPUs is broken.

## How to mend it

On one host the path between the GPUs (NCCL_P2P_DISABLE=1, ACS off, driver); over several hosts the
interface (NCCL_SOCKET_IFNAME) and the InfiniBand settings (NCCL_IB_HCA, NCCL_IB_GID_INDEX). If the message came half
an hour, or ten minutes, after the start, look for the rank that was late.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's reducer.cpp, verify_params_across_processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP334", Severity.ERROR)


@log_pattern(
    r"expects same model across all ranks, but Rank (\d+) has ([1-9]\d*) params, while rank (\d+) has "
    r"inconsistent 0 params"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The number 0 is a buffer that nothing was received into."""
    here, count, other = match.groups()
    yield Finding(
        f"rank {here} received nothing from rank {other} in the first collective of the group: the ranks cannot "
        "communicate, and their models need not differ",
        (record.proof(match, f"{count} params from rank {other}, or another number than 0"),),
        Fix(
            "test the transport alone, then name the interface or leave out the path that fails",
            command="NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1 torchrun ...   # one host\n"
            "export NCCL_SOCKET_IFNAME=eth0 NCCL_IB_DISABLE=1   # several hosts: the interface that reaches the peers",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the first transfer between the GPUs or hosts does not work",
                f"rank {other} was still busy, or had failed, when the others timed out",
            ),
            "ddpdoctor check --only nccl-collectives-fail",
        ),
    )
