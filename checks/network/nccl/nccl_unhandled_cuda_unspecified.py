"""NCCL reports a CUDA error and does not say which.

## What happens

"unhandled cuda error" (ncclUnhandledCudaError) means that a call to the CUDA runtime or driver failed inside NCCL.
The exception carries only the class. The text, for example "Cuda failure 'out of memory'", is in the NCCL WARN line
before it, which NCCL prints where NCCL_DEBUG is WARN or INFO, and since NCCL 2.14 also after "Last error:". A kernel
of the training that failed earlier is reported here as well, since its error makes every later CUDA call fail.

## How to be sure

Run again with `NCCL_DEBUG=INFO` and look for "Cuda failure" in the logs of all ranks. Lines above it that name a GPU
whose architecture the torch build does not support are enough without a second run. ddpdoctor quotes the WARN line
where the log has one, and gives the fix that belongs to its text.

## How to mend it

The text of "Cuda failure" decides which of these applies:

- "out of memory": leave some hundred MB of the GPU to NCCL, and look with `nvidia-smi` for another process on it.
  `export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` reduces the fragmentation of torch's cache.
- "driver version is insufficient" or "unsupported toolchain": install a driver as new as the CUDA of torch.
- "no kernel image" or "named symbol not found": install a torch build for this GPU;
  `python -m torch.utils.collect_env` shows what is installed.
- "illegal memory access", "device-side assert" or "unspecified launch failure": find the kernel that failed before,
  with `CUDA_LAUNCH_BLOCKING=1 torchrun ...`.
- "peer access is not supported": `export NCCL_P2P_DISABLE=1`, and let every rank see all GPUs of its host.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL, CUDACHECK in checks.h, and ncclGetErrorString.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

from ._nccl import COMPLETE, WARN, unspecified

AILMENT = Ailment("DDP332", Severity.ERROR)
CAUSES = (
    "the GPUs have no peer access to each other",
    "the driver is older than this NCCL needs",
    "the torch build has no kernels for this GPU",
    "the GPU's memory is full",
    "an earlier kernel of the training failed",
)

PEERS = (
    "a process cannot open the GPU memory of its peer (CUDA IPC), which NCCL_CUMEM_ENABLE=0 has chosen",
    "the processes are in containers without a common IPC namespace (docker run --ipc=host)",
    "each process sees its own GPU alone (CUDA_VISIBLE_DEVICES), and not that of its peer",
    "the GPUs have no peer access to each other: NCCL_P2P_DISABLE=1 runs",
)
NOT_OFFERED = "operation not supported"
OF_A_PART = (
    "the GPU is a part of one (MIG, vGPU), or a virtual machine's, which does not offer what NCCL asks of it",
    "the driver is older than this NCCL needs",
    "the GPUs have no peer access to each other",
)
WHOLE = Fix(
    "give each rank a whole GPU, and let NCCL do without what a part does not offer; one rank alone needs no NCCL",
    command="export NCCL_CUMEM_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_P2P_DISABLE=1",
)
VIRTUAL = "nvidia-smi -L; nvidia-smi -q | grep -iE -A2 'virtualization mode|mig mode|driver version'"
OTHER_WAY = "unset NCCL_CUMEM_ENABLE   # or: export NCCL_P2P_DISABLE=1"
UNHANDLED = r"unhandled cuda error|ncclUnhandledCudaError: Call to CUDA"
FAILED = r"NCCL WARN (?:Cuda|HIP) failure (?:\d+ )?'((?!CUDA driver version|out of memory)[^'\n]+)'"
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

MULTICAST = (
    "NVLink's multicast (NVLS) does not work: nvidia-fabricmanager is absent, or was started anew without a reset"
)
SHARING = "the driver, a virtual machine or WSL does not let processes share GPU memory as NCCL does (cuMem)"
UNCLEAR = {
    "unknown error": (
        "a GPU or its driver is in a bad state, until it is reset: the kernel's log has Xid lines",
        SHARING,
        MULTICAST,
    ),
    "invalid argument": (MULTICAST, SHARING, *CAUSES[:2]),
}
LOOK = (
    "NCCL_DEBUG=INFO torchrun ... 2>&1 | grep -m1 'NCCL WARN'   # the file names the part: nvls, p2p, allocator\n"
    "sudo dmesg -T | grep -iE 'xid|nvrm' | tail\nNCCL_NVLS_ENABLE=0 NCCL_CUMEM_ENABLE=0 torchrun ...  # runs: these two"
)


@log_pattern(FAILED, role=Role.GENERIC, context=(UNHANDLED, COMPLETE))
def in_what_is_left_of_a_log(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read NCCL's warning where the error that it led to is lost; a group that was made all the same survived it."""
    if not log.first(UNHANDLED) and not log.first(COMPLETE):
        finding = unspecified("a CUDA call failed inside NCCL", CAUSES, record, match, log)
        fix = _meaning(match[1])
        yield _of_a_part(finding) if NOT_OFFERED in match[1] else replace(finding, fix=fix or finding.fix)


@log_pattern(UNHANDLED, role=Role.GENERIC, context=(WARN,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the class, with the WARN line where there is one."""
    between_peers = (warned := log.first(WARN)) is not None and "transport/p2p.cc" in warned[0].text
    finding = unspecified("a CUDA call failed inside NCCL", PEERS if between_peers else CAUSES, record, match, log)
    said = CUDA.search(finding.message)
    meaning = _meaning(said[1]) if said else None
    if said and NOT_OFFERED in said[1] and not between_peers:
        yield _of_a_part(finding)
    elif meaning is None and between_peers:
        yield replace(finding, fix=Fix("let NCCL go another way between GPUs", command=OTHER_WAY))
    elif said and said[1] in UNCLEAR and not warned:
        yield replace(finding, ambiguity=Ambiguity(UNCLEAR[said[1]], LOOK))
    else:
        yield replace(finding, fix=meaning, ambiguity=None) if meaning else finding


def _of_a_part(finding: Finding) -> Finding:
    return replace(finding, fix=WHOLE, ambiguity=Ambiguity(OF_A_PART, VIRTUAL))


def _meaning(said: str) -> Fix | None:
    return next((fix for text, fix in MEANING.items() if text in said), None)
