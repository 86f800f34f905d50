"""A GPU kernel accessed memory that is not its own, or stopped for another fault of its own.

## What happens

The driver ends the whole CUDA context of that process. Whatever CUDA call comes next raises "CUDA error: an illegal
memory access was encountered", "unspecified launch failure", "misaligned address" or "an illegal instruction was
encountered"; NCCL's watchdog is often the first to see it. The log of the Linux kernel has Xid 13 (exception of a GPU
kernel), 31 (page fault) or 43 (stopped) with the process's number. The other ranks then wait for this one until their
time-out.

On AMD GPUs the runtime aborts the process itself: "Memory access fault by GPU node-2 ... Reason: Page not present",
and "HW Exception by GPU node-4 ... reason :GPU Hang" for a kernel that does not end or a GPU that does not answer.

The line of the traceback is not the guilty one: GPU kernels run asynchronously, and CUDA reports their errors late.

## How to be sure

With CUDA_LAUNCH_BLOCKING=1 each call waits for its kernel, so the traceback ends at the call that failed:

    CUDA_LAUNCH_BLOCKING=1 torchrun --standalone --nproc_per_node=1 train.py

compute-sanitizer names the kernel, its thread and the address. PYTORCH_NO_CUDA_MEMORY_CACHING=1 lets it see accesses
past a tensor that otherwise fall into the allocator's next block:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --target-processes all torchrun --standalone train.py

## How to mend it

Once the call is known, check the indices, shapes and strides that it is given. Where it is the kernel of an extension
or of Triton, rebuild or upgrade that for this torch, CUDA and GPU. A fault that comes back with different scripts on
one GPU only is a fault of that GPU: `ddpdoctor check --only gpu`.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: CUDA Runtime API, error types 700 and 714 to 719; NVIDIA, "Xid Errors"; Compute
Sanitizer documentation; torch, "CUDA environment variables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Place, Record, Severity, log_pattern

from ..hardware.gpu_hardware_fault import FAULT
from .device_side_assert import ASSERTION, TRIGGERED

AILMENT = Ailment("DDP219", Severity.ERROR)
REPORTED = (
    r"(?:CUDA error: |(?i:cuda (?:runtime error|failure)) [^\n']{0,160}'?|Triton Error \[CUDA\]: "
    r"|THCudaCheck FAIL [^\n]{0,200} error=\d+ : |CUDA_ERROR_\w+: )"
    r"(an illegal (?:memory access|instruction) was encountered|unspecified launch failure|misaligned address"
    r"|hardware stack error|invalid program counter|operation not supported on global/shared address space)"
)
XID = r"NVRM: Xid \(PCI:([\w:.]+)\): (13|31|43), pid='?(\d+)'?, name=(?:python|pt_|torch|ray::)[^\n]*"
FIX = Fix(
    "find the kernel: let the traceback stop at its call, or have compute-sanitizer name it",
    command="CUDA_LAUNCH_BLOCKING=1 torchrun --standalone --nproc_per_node=1 train.py\n"
    "PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --target-processes all \\\n"
    "    torchrun --standalone --nproc_per_node=1 train.py",
)
FAILED = r"exitcode *: ?-?[1-9]\d*\)?[^\n]{0,40}\(pid: (\d+)\)"
DECIDED = rf"{ASSERTION}|{TRIGGERED}"


@log_pattern(REPORTED, context=(DECIDED, FAULT, XID))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report that the line is not the guilty one; an assertion of a kernel or a fault of the GPU is another check's."""
    if log.first(DECIDED) or log.first(FAULT):
        return
    driver = log.first(XID)
    yield Finding(
        f"a GPU kernel failed earlier than its line says: {match[1]}",
        (
            record.proof(match, "no error; CUDA reports a kernel's at a later call, so this is not the guilty line"),
            *((driver[0].proof(driver[1]),) if driver else ()),
        ),
        FIX,
        Place(rank=record.rank, host=record.node),
    )


@log_pattern(
    r"cuDNN error: CUDNN_STATUS_EXECUTION_FAILED|CUDA error: CU(?:BLAS|SPARSE|FFT|SOLVER)_STATUS_EXECUTION_FAILED"
    r"|cu(?:FFT|SPARSE|SOLVER) error: CU\w+_(?:EXEC|EXECUTION)_FAILED"
    r"|RuntimeError: miopenStatus(?:InternalError|UnknownError)\b",
    context=(REPORTED, DECIDED, FAULT),
)
def in_a_library(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A library could not run its kernel: often after another one had failed, so the causes that remain are named."""
    if log.first(REPORTED) or log.first(DECIDED) or log.first(FAULT):
        return
    yield Finding(
        f"a kernel of a GPU library failed: {match[0]}",
        (record.proof(match, "no error; it can be an earlier kernel's"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (
                "an earlier kernel failed, and this call is the first to see it (an index out of range, an extension)",
                "the GPU's memory is full, so the library got no workspace",
                "the library does not fit this GPU or driver (another cuDNN or cuBLAS on LD_LIBRARY_PATH)",
            ),
            "CUDA_LAUNCH_BLOCKING=1 torchrun --standalone --nproc_per_node=1 train.py; nvidia-smi; "
            "python -m torch.utils.collect_env",
        ),
    )


@log_pattern(XID, context=(REPORTED, DECIDED, FAULT, FAILED))
def in_the_kernels_log(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the driver's word where the program's own is missing, for the very process that the launcher saw fail."""
    if log.first(REPORTED) or log.first(DECIDED) or log.first(FAULT):
        return
    for other, failed in log.find(FAILED):
        if failed[1] == match[3]:
            yield Finding(
                f"a GPU kernel of process {match[3]} failed on GPU {match[1]} (Xid {match[2]})",
                (record.proof(match, "no Xid 13, 31 or 43: a fault of a program"), other.proof(failed)),
                FIX,
                Place(host=record.node),
            )
            return


@log_pattern(
    r"Memory access fault by GPU node-(?P<fault>\d+)[^\n]*|HW Exception by GPU node-(?P<hang>\d+)[^\n]{0,80}GPU Hang"
)
def on_rocm(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """AMD's runtime ends the process; a hang can be the GPU's own."""
    node = match["fault"] or match["hang"]
    yield Finding(
        f"a kernel on GPU node {node} accessed memory that is not its own"
        if match["fault"]
        else f"GPU node {node} hangs: a kernel does not end, or the GPU does not answer",
        (record.proof(match, "kernels that end, and stay within their memory"),),
        Fix(
            "let each call wait for its kernel: the traceback then ends at the one that fails",
            command="AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 torchrun --standalone --nproc_per_node=1 train.py",
        ),
        Place(rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            ("a kernel of this program or of a library does not end", "the GPU or its link failed"),
            "dmesg -T | grep -iE 'amdgpu|hardware error' | tail -20",
        )
        if match["hang"]
        else Ambiguity(
            (
                "a kernel of this program or of a library goes past its memory",
                "torch's build, ROCm and the driver do not fit each other or the GPU: a small collective fails too",
                "the GPUs cannot reach each other's memory (IOMMU, PCIe ACS): only several GPUs together fail",
            ),
            "ddpdoctor check --only gpu; python -m torch.utils.collect_env | grep -iE 'rocm|hip'; cat "
            "/proc/cmdline   # iommu=pt",
        ),
    )


@log_pattern(
    r"Callback: Queue \S+ [Aa]borting with error : (?P<status>HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_APERTURE_VIOLATION"
    r"|MEMORY_FAULT|ILLEGAL_INSTRUCTION|INVALID_ISA|OUT_OF_RESOURCES))"
)
def in_a_queue_of_rocm(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """AMD's runtime ends the process over one of its queues."""
    yield Finding(
        f"a kernel of this rank ended its GPU's queue: {match['status']}",
        (record.proof(match, "kernels that end"),),
        Fix(
            "let each call wait for its kernel: the traceback then ends at the one that fails",
            command="AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 torchrun --standalone --nproc_per_node=1 train.py",
        ),
        Place(rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            (
                "a kernel accesses memory that is not its own, or is built for another GPU",
                "the GPU's memory is full: the runtime gets none for a kernel's stack",
                "the GPU or its link failed",
            ),
            "rocm-smi --showmeminfo vram; dmesg -T | grep -iE 'amdgpu|hardware error' | tail -20",
        ),
    )
