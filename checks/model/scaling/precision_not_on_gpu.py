"""The training asks for what the GPU, or its driver, is too old for: bfloat16, FlashAttention, FP8.

## What happens

bfloat16 and FlashAttention 2 need compute capability 8.0 (Ampere: A100, A10, RTX 30xx), FP8 8.9 (Ada, Hopper). V100,
T4, P100 and RTX 20xx are older: "Your setup doesn't support bf16/gpu", "FlashAttention only supports Ampere GPUs or
newer", "Bfloat16 is only supported on GPUs with compute capability of at least 8.0". Each rank ends before its first
step; on hosts with different GPUs only those of the older ones.

Transformer Engine leaves the choice of a kernel to cuBLASLt: "cuBLAS Error: the requested functionality is not
supported" means that it has none, for this GPU or for these shapes and addresses.

## How to be sure

`python -c "import torch; print(torch.cuda.get_device_name(), torch.cuda.get_device_capability())"` on each host.

## How to mend it

float16 with a gradient scaler, and torch's own attention (`attn_implementation="sdpa"`), run on all of them.

## Versions and sources

Sources: transformers, training_args.py; flash-attention, README, "NVIDIA CUDA Support"; vLLM, platforms/cuda.py;
Transformer Engine, fp8.py. Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1567", Severity.ERROR)
FLASH = Fix(
    "take torch's own attention, which runs on older GPUs as well",
    diff='-model = AutoModel.from_pretrained(name, attn_implementation="flash_attention_2")\n'
    '+model = AutoModel.from_pretrained(name, attn_implementation="sdpa")',
)
HALF = Fix(
    "train in float16 with a gradient scaler, or on newer GPUs",
    diff="-bf16=True\n+fp16=True   # transformers; torch: autocast(dtype=torch.float16) and GradScaler",
)
EIGHT = Fix("train in bfloat16, or on GPUs of the Ada or Hopper generation", diff="-fp8\n+bf16")


@log_pattern(
    r"(?P<bf16>Your setup doesn't support bf16(?:/gpu)?|Current (?:CUDA Device|GPU) does not support bfloat16"
    r"|Bfloat16 is only supported on GPUs with compute capability of at least [\d.]+)"
    r"|(?P<flash>FlashAttention (?:\w+ )?only supports (?:Ampere|Turing)[^\n]{0,40} GPUs or newer)"
    r"|(?P<fp8>Device compute capability [\d.]+ or higher required for FP8 execution)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what was asked for; a warning that goes on without it is no fault."""
    if not record.error:
        return
    what = "bfloat16" if match["bf16"] else "FlashAttention" if match["flash"] else "FP8"
    yield Finding(
        f"this rank's GPU is too old for {what}",
        (record.proof(match, "a GPU of compute capability 8.9" if match["fp8"] else "one of compute capability 8.0"),),
        HALF if match["bf16"] else FLASH if match["flash"] else EIGHT,
        record.place,
    )


@log_pattern(
    r"cublaslt_gemm\.cu:\d+ in function (?P<function>\w{1,60}): "
    r"cuBLAS Error: (?P<why>the requested functionality is not supported)"
)
def of_a_product(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Transformer Engine asked cuBLASLt for a product of matrices, and it has no kernel for it."""
    yield Finding(
        "cuBLAS has no kernel for a product of matrices that Transformer Engine asked for on this GPU",
        (record.proof(match, "a precision, shapes and addresses that this GPU's cuBLAS takes"),),
        Fix(
            "see whether it goes in bfloat16; then pad what is multiplied, or bring the versions together",
            diff="-with te.autocast(enabled=True, recipe=recipe):\n+with te.autocast(enabled=False):   # for a try",
            command="python -c 'import torch; print(torch.cuda.get_device_name(), torch.cuda.get_device_capability(), "
            "torch.version.cuda)'; pip list | grep -iE 'transformer.engine|cublas'",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "in FP8 both sides of a product have to be multiples of 16 (rows of a batch, a vocabulary's size)",
                "a weight, or its gradient, is a view that begins at no multiple of 16 bytes, as uneven shards do",
                "this GPU is newer than the cuBLAS that is loaded, or has no such kernel at all",
            ),
            "CUBLASLT_LOG_LEVEL=2 torchrun ... 2>&1 | grep -m3 -iE 'cublasLt.*(not supported|alignment|status)'",
        ),
    )
