"""Memory for RDMA cannot be locked.

## What happens

InfiniBand and RoCE need memory that is locked, so that it stays at its physical address. With a small limit on locked
memory NCCL fails at start: "Call to ibv_reg_mr failed with error Cannot allocate memory", or only ncclSystemError.
"ibv_create_cq failed" without an errno (NCCL before 2.19) mostly has this cause; the other one is a libibverbs that
does not fit the device's driver.

It concerns only hosts with RDMA devices, and of these only trainings with GPUs on several hosts: on one host NCCL
does not use the network, and gloo uses no RDMA. A process with CAP_IPC_LOCK has no limit.

## How to be sure

Run `ulimit -l` in the same shell or container that starts the training; it prints "unlimited" where all is right.
ddpdoctor reads the same limit (RLIMIT_MEMLOCK) and reports it below 1 GiB where there are RDMA devices and GPUs and
NCCL_IB_DISABLE is not set. Where no variable of a launcher shows several hosts, it is a note.

## How to mend it

Best first: lift the limit on each host, `ulimit -l unlimited` before the training starts; in a container
`docker run --ulimit memlock=-1 ...`. Until then `NCCL_IB_DISABLE=1` makes NCCL use sockets, which are slower.

## Versions and sources

Holds for all versions of NCCL, on Linux. Source: NCCL documentation, "Troubleshooting", "Memory limits";
ibv_reg_mr(3); capabilities(7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Record,
    Severity,
    human_size,
    log_pattern,
    probe,
    several_hosts,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP152", Severity.ERROR)
FIX = Fix("lift the limit", command="ulimit -l unlimited   # docker run --ulimit memlock=-1 ...")
ENOUGH = 2**30  # bytes; NCCL registers some hundred MiB for each communicator


@probe
def limit(facts: Facts) -> Iterator[Finding]:
    """Compare the limit with what RDMA needs."""
    if not facts.limits.rdma_devices:
        raise NotRun("no RDMA device")
    if not facts.gpus.devices or facts.environ.get("NCCL_IB_DISABLE", "0") != "0":
        raise NotRun("nothing uses RDMA: no GPUs, or NCCL_IB_DISABLE is set")
    memlock = facts.limits.memlock
    if memlock is not None and memlock < ENOUGH:
        yield Finding(
            f"at most {human_size(memlock)} can be locked, and {', '.join(facts.limits.rdma_devices)} need more",
            (Evidence(f"RLIMIT_MEMLOCK is {human_size(memlock)}", "unlimited", "getrlimit"),),
            FIX,
            severity=None if several_hosts(facts.environ) else Severity.NOTE,
        )


@log_pattern(r"(?<!INFO )Call to (ibv_\w+) failed with (?:error )?(?:\d+ )?Cannot allocate memory")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Libibverbs could not lock memory."""
    yield Finding(
        f"InfiniBand cannot lock memory on this host: {match[1]} failed with ENOMEM",
        (record.proof(match, "ulimit -l is unlimited"),),
        FIX,
        record.place,
    )


@log_pattern(r"Call to (ibv_create_(?:cq|qp)) failed[ \t]*$")
def without_an_errno(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL before 2.19 does not print why."""
    yield Finding(
        f"InfiniBand does not start on this host: {match[1]} failed",
        (record.proof(match, "ulimit -l is unlimited"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            ("the limit on locked memory is too low", "libibverbs does not fit the device's driver"), "ulimit -l"
        ),
    )
