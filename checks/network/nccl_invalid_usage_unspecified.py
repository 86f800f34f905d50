"""NCCL reports invalid usage and does not say what is invalid.

"invalid usage" (ncclInvalidUsage) is what NCCL returns when two ranks of one host use the same GPU, when the ranks
have different versions of NCCL, when NCCL_SOCKET_IFNAME matches no interface, and when a group's calls do not fit
together. The reason stands in the NCCL WARN line before it (with NCCL_DEBUG=WARN or INFO) and, since NCCL 2.14, after
"Last error:". Older versions leave the exception bare.

How to be sure: run again with `NCCL_DEBUG=WARN` and read the first NCCL WARN of any rank. Without a second run: more
ranks than GPUs on a host is by far the most frequent reason.

Holds for torch 2.2 to 2.13. Source: NCCL, places that return ncclInvalidUsage in versions 2.7 to 2.30.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

from ._nccl import WARN, unspecified

CARD = Card("DDP333", Severity.ERROR)
CAUSES = (
    "two ranks of a host use the same GPU",
    "another NCCL library is loaded than the one torch was built with, or the hosts have different ones",
    "NCCL_SOCKET_IFNAME matches no interface",
)


@sign(
    r"\binvalid usage(?: \(run with [^)\n]*\))?, NCCL version|ncclInvalidUsage: This usually reflects invalid usage",
    role=Role.SYMPTOM,
    beside=(WARN,),
    explains=("collective-timeout", "remote-rank-died-or-network"),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    yield unspecified("NCCL refused a call as invalid usage", CAUSES, record, match, log)
