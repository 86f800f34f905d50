"""NCCL reports a CUDA error and does not say which.

"unhandled cuda error" (ncclUnhandledCudaError) means that a call into the CUDA runtime or driver failed inside NCCL.
The exception carries only the class; the text, "Cuda failure 'out of memory'" say, stands in the NCCL WARN line
before it, which is printed where NCCL_DEBUG is WARN or INFO, and after "Last error:" since NCCL 2.14. A kernel of the
training's own that failed earlier is reported here as well: CUDA errors stick.

How to be sure: run again with `NCCL_DEBUG=INFO` and look for "Cuda failure". Lines above about a GPU whose
architecture the torch build does not support decide the matter without it.

Holds for torch 2.2 to 2.13. Source: NCCL, CUDACHECK in checks.h, and ncclGetErrorString.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

from ._nccl import WARN, unspecified

CARD = Card("DDP332", Severity.ERROR)
CAUSES = (
    "the GPUs have no peer access to each other",
    "the driver is older than this NCCL needs",
    "the torch build has no kernels for this GPU",
    "the GPU's memory is full",
    "an earlier kernel of the training failed",
)


@sign(
    r"unhandled cuda error|ncclUnhandledCudaError: Call to CUDA",
    role=Role.SYMPTOM,
    beside=(WARN,),
    explains=("collective-timeout", "remote-rank-died-or-network"),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    yield unspecified("a CUDA call failed inside NCCL", CAUSES, record, match, log)
