# ruff: noqa: S108 - the directory is one of the causes
"""NCCL reports a system error and does not say which.

"unhandled system error" (ncclSystemError) stands for any call into the system that failed: a socket, shared memory, a
file, or libibverbs. The exception carries only the class. Which call it was, and with which errno, is in the line
that NCCL prints as "NCCL WARN" before it, and that line is only printed where NCCL_DEBUG is WARN or INFO. Since NCCL
2.14 the text after "Last error:" repeats it.

How to be sure: run again with `NCCL_DEBUG=INFO` and read the first NCCL WARN of any rank.

What is behind it most often, in this order: /dev/shm of a container is full; the interface that NCCL chose cannot be
reached from the other hosts; a firewall; the limit on locked memory with InfiniBand.

Holds for torch 2.2 to 2.13. Source: NCCL, ncclGetErrorString and ncclGetLastError; torch's NCCLUtils.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

from ._nccl import WARN, unspecified

CARD = Card("DDP331", Severity.ERROR)
CAUSES = (
    "/dev/shm of the container is too small",
    "NCCL's interface cannot be reached from the other hosts",
    "a firewall closes the ports above the rendezvous port",
    "InfiniBand cannot lock or register memory",
)


@sign(
    r"unhandled system error|ncclSystemError: System call",
    role=Role.SYMPTOM,
    beside=(WARN, r"NET/IB : Using"),
    explains=("collective-timeout", "remote-rank-died-or-network"),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    if log.first(WARN) or not log.first(r"NET/IB : Using"):  # else: rdma-misconfigured
        yield unspecified("NCCL stopped at a system error", CAUSES, record, match, log)
