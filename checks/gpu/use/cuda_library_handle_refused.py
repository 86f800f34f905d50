"""cuBLAS or cuDNN cannot be set up on the GPU.

## What happens

The first matrix product or convolution makes a handle of cuBLAS or cuDNN, which needs memory on the GPU.
"CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "CUDNN_STATUS_NOT_INITIALIZED" and
"CUDNN_STATUS_INTERNAL_ERROR" mean in most cases that the GPU's memory is full: several ranks on one GPU, a process
that was left over, a batch that is too large. The same words come where an earlier kernel failed (an index out of
range) and CUDA reports it late.

## How to be sure

`nvidia-smi` on that host: memory and processes of this GPU. With CUDA_LAUNCH_BLOCKING=1 an earlier fault is reported
at its own line.

## How to mend it

Memory: `torch.cuda.set_device(local_rank)` in each rank, end what was left over, a smaller batch. An earlier fault:
mend the line that CUDA_LAUNCH_BLOCKING=1 names.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: cuBLAS and cuDNN documentation, status codes; torch's aten/src/ATen/cuda.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP225", Severity.ERROR)
MEMORY = r"OutOfMemoryError: CUDA out of memory|CUDA error: out of memory"


@log_pattern(
    r"CUDA error: (?P<blas>CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)) when calling `?cublas(?:Lt)?Create"
    r"|cuDNN error: (?P<dnn>CUDNN_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR|MAPPING_ERROR|ALLOC_FAILED))",
    context=(MEMORY,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave memory or an earlier fault open, unless the log says that memory ran out."""
    full = log.first(MEMORY)
    yield Finding(
        f"{'cuBLAS' if match['blas'] else 'cuDNN'} could not be set up on the GPU: {match['blas'] or match['dnn']}",
        (
            record.proof(match, "memory for the library's handle, and no earlier fault on the GPU"),
            *((full[0].proof(full[1]),) if full else ()),
        ),
        Fix(
            "see what fills the GPU; one GPU for each rank",
            command="nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
            diff="+torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        ),
        record.place,
        ambiguity=None
        if full
        else Ambiguity(
            ("the memory of the GPU is full", "an earlier kernel failed, and CUDA reports it here"),
            "CUDA_LAUNCH_BLOCKING=1 torchrun ...   # an earlier fault is then raised at its own line",
        ),
    )
