"""NCCL reports invalid usage and does not say what is invalid.

## What happens

NCCL returns "invalid usage" (ncclInvalidUsage) when two ranks of one host use the same GPU, when the ranks have
different versions of NCCL, when NCCL_SOCKET_IFNAME matches no interface, and when the calls of a group do not fit
together. The reason is in the NCCL WARN line before it, which NCCL prints with NCCL_DEBUG=WARN or INFO, and since
NCCL 2.14 also after "Last error:". Older versions give only the exception.

## How to be sure

Run again with `NCCL_DEBUG=WARN` and read the first NCCL WARN line of any rank. Without a second run: more ranks than
GPUs on a host is by far the most frequent reason. ddpdoctor reports this finding only where the log does not name the
reason; it quotes the WARN line where there is one.

## How to mend it

The WARN line decides which of these applies; the most frequent is first:

- Two ranks use the same GPU: call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the first collective,
  and start at most as many ranks on a host as it has GPUs.
- NCCL_SOCKET_IFNAME matches no interface: correct it after `ip -brief address`, or unset it (interface-missing).
- Versions differ: install one torch build on all hosts, and compare `torch.cuda.nccl.version()` with the library that
  LD_LIBRARY_PATH leads to.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL, places that return ncclInvalidUsage in versions 2.7 to 2.30.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Log, Record, Role, Severity, log_pattern

from ._nccl import WARN, unspecified

AILMENT = Ailment("DDP333", Severity.ERROR)
CAUSES = (
    "two ranks of a host use the same GPU",
    "another NCCL library is loaded than the one torch was built with, or the hosts have different ones",
    "NCCL_SOCKET_IFNAME matches no interface",
)

ARGUMENT = (
    "a rank is not below the number of ranks: more processes were started than the script's world size",
    "two ranks of a host use the same GPU",
    "another NCCL library is loaded than the one torch was built with",
)


@log_pattern(
    r"\binvalid usage(?: \(run with [^)\n]*\))?, NCCL version|NCCL error: invalid usage\b"
    r"|NCCL Error 5: invalid usage|ncclInvalidUsage: This usually reflects invalid usage"
    r"|NCCL error in: [^\n]{1,200}?, (?P<argument>invalid argument)(?: \(run with [^)\n]*\))?, NCCL version",
    role=Role.GENERIC,
    context=(WARN,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    what, causes = ("an invalid argument", ARGUMENT) if match["argument"] else ("invalid usage", CAUSES)
    yield unspecified(f"NCCL refused a call as {what}", causes, record, match, log)
