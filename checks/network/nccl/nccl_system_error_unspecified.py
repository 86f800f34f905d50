# ruff: noqa: S108 - the directory is one of the causes
"""NCCL reports a system error and does not say which.

## What happens

"unhandled system error" (ncclSystemError) means that a system call inside NCCL failed: on a socket, on shared memory,
on a file, or in libibverbs. The exception carries only the class. The call and its errno are in the "NCCL WARN" line
before it, which NCCL prints only where NCCL_DEBUG is WARN or INFO. Since NCCL 2.14 the text after "Last error:"
repeats it.

The most frequent causes, in this order: /dev/shm of a container is full; the interface that NCCL chose cannot be
reached from the other hosts; a firewall; the limit on locked memory with InfiniBand.

## How to be sure

Run again with `NCCL_DEBUG=INFO` and read the first NCCL WARN line of any rank. ddpdoctor reports this finding where
the log does not name the cause, and quotes the WARN line where there is one.

## How to mend it

The WARN line decides which of these applies:

- It names /dev/shm or posix_fallocate: start the container with `--ipc=host` or `--shm-size=16g`
  (nccl-shm-too-small).
- It names connect or a socket: set NCCL_SOCKET_IFNAME on each host to the interface that reaches the others
  (interface-unreachable). If the interface is right, open the ports between the hosts: NCCL takes any free port, not
  only MASTER_PORT (firewall-blocks-nccl-ports).
- It names ibv_reg_mr or another function of libibverbs: `ulimit -l unlimited`, in a container
  `docker run --ulimit memlock=-1 ...` (memlock-limit-too-low).

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL, ncclGetErrorString and ncclGetLastError; torch's NCCLUtils.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Log, Record, Role, Severity, log_pattern

from ._nccl import COMPLETE, WARN, unspecified

TOLD = r"ncclSystemError|unhandled system error"
AILMENT = Ailment("DDP331", Severity.ERROR)
CAUSES = (
    "/dev/shm of the container is too small",
    "NCCL's interface cannot be reached from the other hosts",
    "a firewall closes the ports above the rendezvous port",
    "InfiniBand cannot lock or register memory",
)


@log_pattern(
    r"unhandled system error|ncclSystemError: System call", role=Role.GENERIC, context=(WARN, r"NET/IB : Using")
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    if log.first(WARN) or not log.first(r"NET/IB : Using"):  # else: rdma-misconfigured
        yield unspecified("NCCL stopped at a system error", CAUSES, record, match, log)


@log_pattern(r"NCCL INFO init\.cc:\d+ -> 2\b", role=Role.GENERIC, context=(WARN, COMPLETE, TOLD))
def in_what_is_left_of_a_log(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the status with which a group was given up, where the exception is lost; a group that was made survived."""
    if log.first(WARN) and not log.first(TOLD) and not log.first(COMPLETE):
        yield unspecified("NCCL stopped at a system error", CAUSES, record, match, log)
