"""Memory for RDMA cannot be locked.

InfiniBand and RoCE need memory that stays where it is. With a small limit NCCL fails at start: "ibv_reg_mr failed
with error Cannot allocate memory", or ncclSystemError. Only hosts with RDMA devices are concerned, and of these only
a training with GPUs on several hosts: on one host NCCL does not use the network, and gloo uses no RDMA. Where no
variable of a launcher speaks of several hosts, this is a note. A process with CAP_IPC_LOCK has no limit.

In a log "Call to ibv_reg_mr failed with error Cannot allocate memory" is this; "ibv_create_cq failed" without an
errno (NCCL before 2.19) is this most often, and else a library of libibverbs that does not fit the device.

To be sure: `ulimit -l`, in the very shell or container that starts the training.

Source: NCCL documentation, "Troubleshooting", "Memory limits"; ibv_reg_mr(3); capabilities(7). Holds for all versions
of NCCL, on Linux.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, NotRun, Severity
from ddpdoctor.check import Role, probe, sign
from ddpdoctor.explain.records import Record
from ddpdoctor.probe.limits import human
from ddpdoctor.probe.network import several_hosts

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP152", Severity.ERROR, known_as=("rdma-memlock-limit",))
CONSEQUENCES = ("nccl-system-error-unspecified", "remote-rank-died-or-network", "collective-timeout")
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
            f"at most {human(memlock)} can be locked, and {', '.join(facts.limits.rdma_devices)} need more",
            (Evidence(f"RLIMIT_MEMLOCK is {human(memlock)}", "unlimited", "getrlimit"),),
            FIX,
            severity=None if several_hosts(facts.environ) else Severity.NOTE,
        )


@sign(r"(?<!INFO )Call to (ibv_\w+) failed with (?:error )?(?:\d+ )?Cannot allocate memory", explains=CONSEQUENCES)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Libibverbs could not lock memory."""
    yield Finding(
        f"InfiniBand cannot lock memory on this host: {match[1]} failed with ENOMEM",
        (record.proof(match, "ulimit -l is unlimited"),),
        FIX,
        record.place,
    )


@sign(r"Call to (ibv_create_(?:cq|qp)) failed[ \t]*$", role=Role.SYMPTOM, explains=CONSEQUENCES)
def without_an_errno(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL before 2.19 does not print why."""
    yield Finding(
        f"InfiniBand does not start on this host: {match[1]} failed",
        (record.proof(match, "ulimit -l is unlimited"),),
        FIX,
        record.place,
        doubt=Doubt(
            ("the limit on locked memory is too low", "libibverbs does not fit the device's driver"), "ulimit -l"
        ),
    )
