"""NCCL reports an internal error and does not say more.

## What happens

"internal error" (ncclInternalError, "Internal check failed") is what a rank gets when its own proxy thread has failed,
when the topology of the host cannot be read (an XML file, a virtual machine), when the ranks do not agree on the
settings of NCCL, when NCCL is older than the GPUs ("Failed to find reverse path from remNode"), and when a peer
vanished at an unlucky moment. The first NCCL WARN line of any rank says which; the exception has it after "Last error:"
since NCCL 2.14.

## How to be sure

Run again with `NCCL_DEBUG=INFO` and read the first NCCL WARN of all ranks, by time.

## How to mend it

What that line shows. Compare the NCCL_* variables and NCCL's version between the hosts.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL, ncclGetErrorString, src/proxy.cc and src/graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

from ._nccl import COMPLETE, WARN, unspecified

TOLD = r"ncclInternalError|internal error"
AILMENT = Ailment("DDP345", Severity.ERROR)
TOPOLOGY = re.compile(r"Failed to find reverse path|remNode \S+ nlinks|Could not find a path for pattern")
VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
TRUNCATED = re.compile(r"bootstrap\S*:\d+ (?:NCCL WARN )?Message truncated")
OUT_OF_STEP = (
    "the ranks set up other things at the same time: groups, or their first send and receive, in another order",
    "a rank, or its proxy thread, failed first: the first NCCL WARN of another rank says why",
    "the NCCL_* variables, or the versions of NCCL, differ between the hosts",
)
CAUSES = (
    "a rank, or its proxy thread, failed first: the first NCCL WARN of another rank says why",
    "the NCCL_* variables, or the versions of NCCL, differ between the hosts",
    "NCCL cannot read the topology of this host (virtual machine, container)",
)


@log_pattern(
    r"internal error(?: - please report this issue to the NCCL developers)?, NCCL version"
    r"|ncclInternalError: Internal check failed",
    role=Role.GENERIC,
    context=(WARN,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    said = unspecified("NCCL stopped at an internal error", CAUSES, record, match, log)
    more = said.evidence[-1]
    if TRUNCATED.search(more.seen) and said.ambiguity:
        said = replace(said, ambiguity=replace(said.ambiguity, causes=OUT_OF_STEP))
    yield _of_the_topology(said, record) if TOPOLOGY.search(more.seen) else said


def _of_the_topology(said: Finding, record: Record) -> Finding:
    """NCCL has found no way between two devices of this host, which it knows by its own tables of GPUs and links."""
    version = VERSION.search(record.text)
    named = f"NCCL {version[1]}" if version else "this NCCL"
    return replace(
        said,
        fix=Fix(
            "take a torch whose NCCL is of the time of the GPUs or later",
            command="nvidia-smi --query-gpu=name --format=csv,noheader | sort -u; nvidia-smi topo -m\n"
            "pip install --upgrade torch; python -c 'import torch; print(torch.cuda.nccl.version())'",
        ),
        ambiguity=Ambiguity(
            (
                f"{named} is older than the GPUs of this host, and does not know their links (H100: 2.15 and later)",
                "the virtual machine, or the container, hides links between the devices; NCCL_TOPO_FILE tells them",
            ),
            "nvidia-smi topo -m; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH torchrun ... 2>&1 | grep -m40 GRAPH",
        ),
    )


@log_pattern(r"NCCL INFO init\.cc:\d+ -> 3\b", role=Role.GENERIC, context=(WARN, COMPLETE, TOLD))
def in_what_is_left_of_a_log(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the status with which a group was given up, where the exception is lost; a group that was made survived."""
    if log.first(WARN) and not log.first(TOLD) and not log.first(COMPLETE):
        yield unspecified("NCCL stopped at an internal error", CAUSES, record, match, log)
