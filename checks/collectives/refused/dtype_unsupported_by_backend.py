"""The backend cannot communicate tensors of this dtype.

## What happens

NCCL and gloo know a fixed set of dtypes. Bool masks with a sum, int16, uint16 or quantised tensors are refused when
the collective is called: "Input tensor data type is not supported for NCCL process group: Short", "Unconvertible NCCL
type", with gloo "Invalid scalar type". Bitwise operations want integers, averages no bools.

## How to be sure

`print(tensor.dtype)` before the call.

## How to mend it

Convert before and after: `mask.to(torch.uint8)`, `x.to(torch.int32)`. Of DDP's own buffers: keep them in such a dtype,
or set `broadcast_buffers=False` where they are equal on all ranks.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Sources: torch's ProcessGroupNCCL.cpp (`getNcclDataType`),
ProcessGroupGloo.cpp (`GENERATE_ALL_TYPES`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP790", Severity.ERROR)

OF_GLOO = r"distributed_c10d\.py|torch[/\\]distributed|distributed\.py"


@log_pattern(
    r"Input tensor data type is not supported for NCCL process group: (?P<nccl>\w+)"
    r"|Unconvertible NCCL type ?(?P<old>\w*)"
    r"|Cannot use ReduceOp\.(?P<op>AVG with boolean inputs|B(?:AND|OR|XOR) with non-integral dtype)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the dtype where the message does."""
    dtype = match["nccl"] or match["old"]
    if match["op"]:
        said = f"a collective uses ReduceOp.{match['op']}"
    else:
        said = (
            f"NCCL cannot communicate tensors of type {dtype}"
            if dtype
            else "NCCL cannot communicate tensors of this type"
        )
    yield Finding(
        said, (record.proof(match, "a dtype that the backend and its operation know"),), CONVERT, record.place
    )


@log_pattern(r"RuntimeError: Invalid scalar type\s*$")
def of_gloo(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo's words are used elsewhere as well: they count where the call was one of torch.distributed."""
    if re.search(OF_GLOO, record.text):
        yield Finding(
            "gloo cannot communicate tensors of this dtype",
            (record.proof(match, "float, double, half, bfloat16, uint8, int8, int32 or int64"),),
            CONVERT,
            record.place,
        )


CONVERT = Fix(
    "convert before the call, and back afterwards",
    diff="-dist.all_reduce(mask)\n+counts = mask.to(torch.int32)\n+dist.all_reduce(counts)",
)
