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

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

from ._nccl import COMPLETE, NAMED, WARN, says_more, unspecified

TOLD = r"ncclSystemError|unhandled system error"
AILMENT = Ailment("DDP331", Severity.ERROR)
NO_PATH = r"NCCL WARN Could not find real path of (?P<path>/sys/class/\S+)"
GIVEN_UP = r"NCCL INFO graph/(?:xml|topo)\.cc:\d+ -> 2\b"
VERSION = r"NCCL version (\d+\.\d+\.\d+)"
CAUSES = (
    "/dev/shm of the container is too small",
    "NCCL's interface cannot be reached from the other hosts",
    "a firewall closes the ports above the rendezvous port",
    "InfiniBand cannot lock or register memory",
)

BY_FILE = r"init_method\W{0,4}[\"']?file://"
OF_A_FILE = "the address is of an earlier start: the file that init_method names was left, and is read again"
REFUSED = (
    "the rank there has ended, or was started anew alone: nobody listens at its old port",
    "a proxy or a firewall on the way rejects the port (the sidecar of a service mesh, as Istio's, in each pod)",
    "NCCL's interface is not one that the hosts share",
)
BY_TEXT = (
    (re.compile(r"[Cc]onnect (?:to \S+ )?(?:failed|returned)|socket\w*Connect"), REFUSED),
    (
        re.compile(r"NET/OFI"),
        (
            "the limit on locked memory is too low (ulimit -l), or the container's",
            "libfabric wants huge pages, and none is left (FI_EFA_USE_HUGE_PAGE=0 does without)",
            "the plugin does not fit the libfabric that is loaded",
        ),
    ),
    (re.compile(r"Cannot allocate memory"), (CAUSES[-1], "the host, or its container, has no memory left")),
)


def _causes(record: Record, log: Log) -> tuple[str, ...]:
    more = says_more(record, log)
    if more is None:
        return CAUSES
    causes = next((causes for text, causes in BY_TEXT if text.search(more.seen)), NAMED)
    return (OF_A_FILE, *causes) if causes is REFUSED and log.first(BY_FILE) else causes


@log_pattern(
    r"unhandled system error|ncclSystemError: System call",
    role=Role.GENERIC,
    context=(WARN, BY_FILE, r"NET/IB : Using"),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    if log.first(WARN) or not log.first(r"NET/IB : Using"):  # else: rdma-misconfigured
        yield unspecified("NCCL stopped at a system error", _causes(record, log), record, match, log)


@log_pattern(r"NCCL INFO init\.cc:\d+ -> 2\b", role=Role.GENERIC, context=(WARN, BY_FILE, COMPLETE, TOLD))
def in_what_is_left_of_a_log(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the status with which a group was given up, where the exception is lost; a group that was made survived."""
    if log.first(WARN) and not log.first(TOLD) and not log.first(COMPLETE):
        yield unspecified("NCCL stopped at a system error", _causes(record, log), record, match, log)


@log_pattern(NO_PATH, context=(WARN, COMPLETE, GIVEN_UP, TOLD, VERSION))
def without_a_pci_bus(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Old versions stop where /sys does not show the GPU; those that go on, and hosts that do, say no more of it."""
    if log.first(COMPLETE) or log.first(WARN) or not (log.first(GIVEN_UP) or log.first(TOLD)):
        return
    version = f" {found[1][1]}" if (found := log.first(VERSION)) else ""
    yield Finding(
        f"NCCL{version} stops where /sys does not show the GPU's PCI bus: {match['path']}",
        (record.proof(match, "a directory of the host's devices"),),
        Fix(
            "use NCCL 2.11 or later, which torch 1.13 and later bring along; until then gloo, or one process",
            command='python -c "import torch; print(torch.__version__, torch.cuda.nccl.version())"',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the host is WSL, or a virtual machine, which older versions of NCCL do not know",
                "the container masks /sys, or has it not mounted",
            ),
            "uname -r; ls /sys/class/pci_bus | head -3   # -microsoft- is WSL",
        ),
    )
