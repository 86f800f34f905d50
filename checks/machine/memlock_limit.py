"""Memory for RDMA cannot be locked.

InfiniBand and RoCE need memory that stays where it is. With a small limit NCCL fails at start: "ibv_reg_mr failed
with error Cannot allocate memory", or ncclSystemError. Only hosts with RDMA devices are concerned, and of these only
a training with GPUs on several hosts: on one host NCCL does not use the network, and gloo uses no RDMA. Where no
variable of a launcher speaks of several hosts, this is a note. A process with CAP_IPC_LOCK has no limit.

To be sure: `ulimit -l`, in the very shell or container that starts the training.

Source: NCCL documentation, "Troubleshooting", "Memory limits"; ibv_reg_mr(3); capabilities(7). Holds for
all versions of NCCL, on Linux.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.limits import human
from ddpdoctor.probe.network import several_hosts

CARD = Card("DDP152", Severity.ERROR)
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
            Fix("lift the limit", command="ulimit -l unlimited   # docker run --ulimit memlock=-1 ..."),
            severity=None if several_hosts(facts.environ) else Severity.NOTE,
        )
