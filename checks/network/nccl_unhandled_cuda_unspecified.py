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
from dataclasses import replace

from ddpdoctor import Card, Finding, Fix, Severity
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

UNHANDLED = r"unhandled cuda error|ncclUnhandledCudaError: Call to CUDA"
FAILED = r"NCCL WARN (?:Cuda|HIP) failure (?:\d+ )?'((?!CUDA driver version|out of memory)[^'\n]+)'"
COMPLETE = r"NCCL INFO [^\n]{0,200}Init COMPLETE"
CUDA = re.compile(r"(?:Cuda|HIP) failure (?:\d+ )?'([^'\n]+)'")
EARLIER = Fix("find the kernel that failed before", command="CUDA_LAUNCH_BLOCKING=1 torchrun ...")
MEANING = {
    "out of memory": Fix(
        "leave room on the GPU: NCCL needs some hundred MB beside torch's cache",
        command="nvidia-smi   # another process on it?\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    "driver version is insufficient": Fix("install a driver as new as the CUDA of torch", command="nvidia-smi"),
    "unsupported toolchain": Fix("install a driver as new as the CUDA of torch", command="nvidia-smi"),
    "named symbol not found": Fix(
        "install a torch build whose NCCL has kernels for this GPU", command="python -m torch.utils.collect_env"
    ),
    "no kernel image": Fix("install a torch build for this GPU", command="python -m torch.utils.collect_env"),
    "illegal memory access": EARLIER,
    "device-side assert": EARLIER,
    "unspecified launch failure": EARLIER,
}


@sign(
    FAILED,
    role=Role.SYMPTOM,
    beside=(UNHANDLED, COMPLETE),
    explains=("collective-timeout", "remote-rank-died-or-network"),
)
def in_what_is_left_of_a_log(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read NCCL's warning where the error that it led to is lost; a group that was made all the same survived it."""
    if not log.first(UNHANDLED) and not log.first(COMPLETE):
        finding = unspecified("a CUDA call failed inside NCCL", CAUSES, record, match, log)
        yield replace(finding, fix=_meaning(match[1]) or finding.fix)


@sign(
    UNHANDLED,
    role=Role.SYMPTOM,
    beside=(WARN,),
    explains=("collective-timeout", "remote-rank-died-or-network"),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    finding = unspecified("a CUDA call failed inside NCCL", CAUSES, record, match, log)
    said = CUDA.search(finding.message)
    meaning = _meaning(said[1]) if said else None
    yield replace(finding, fix=meaning, doubt=None) if meaning else finding


def _meaning(said: str) -> Fix | None:
    return next((fix for text, fix in MEANING.items() if text in said), None)
