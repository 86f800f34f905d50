"""A parameter or buffer has a dtype that cannot be sent to other ranks.

## What happens

DDP broadcasts parameters and buffers when it wraps the model. The gloo backend knows no 16-bit, unsigned 32- or 64-bit
integers and no 8-bit floats and raises "Invalid scalar type"; NCCL has no 16-bit integers either ("Unconvertible NCCL
type"). HCCL of Gaudi cards ends the process: "Getting size for given data type is not supported: 0", torch's number of
the type (0: uint8, 11: bool).

## How to be sure

ddpdoctor lets DDP wrap the model, over gloo on CPU.

## How to mend it

Register the buffer as int32 or int64 (or uint8), or compute it in forward. A buffer that is
the same on every rank and need not be sent can be left out: `model._ddp_params_and_buffers_to_ignore =
["table"]`, a private name of torch.

## Versions and sources

Seen with torch 2.13 CPU (int16, uint16, float8_e4m3fn). Source for NCCL: torch's ProcessGroupNCCL; for
Gaudi, huggingface/optimum-habana#353.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import BAD_DTYPE, Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern, probe

from .._logs import DDP_SENDS
from .._words import end, listed

if TYPE_CHECKING:
    from ddpdoctor.check import Buffer, ModelExam, Parameter

AILMENT = Ailment("DDP521", Severity.ERROR)
SENT_BY_NCCL_TOO = "int32"
TRAVELS = {
    *("float64", "float32", "float16", "bfloat16", "complex64", "complex128"),
    *("int64", "int32", "int8", "uint8", "bool"),
}


@probe
def in_a_small_job(model: ModelExam) -> Iterator[Finding]:
    """Yield the name of the tensors that did not travel."""
    steps = model.steps
    steps.under_ddp()
    raised = steps.raised(BAD_DTYPE)
    tensors: tuple[Parameter | Buffer, ...] = (*model.model.parameters, *model.model.buffers)
    names = [item for item in tensors if item.dtype not in TRAVELS]
    if raised and names:
        yield Finding(
            f"DDP cannot send {listed(names)} to the other ranks",
            (Evidence(end(raised[0]), "DDP wraps the model", f"rank {raised[0].rank}, gloo"),),
            Fix(
                f"use {SENT_BY_NCCL_TOO}",
                diff=f'-self.register_buffer("{names[0].name}", values.to(torch.{names[0].dtype}))\n'
                f'+self.register_buffer("{names[0].name}", values.to(torch.{SENT_BY_NCCL_TOO}))',
            ),
        )


@log_pattern(r"RuntimeError: Invalid scalar type|Unconvertible NCCL type")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Where DDP was sending the model; a collective of the user's own raises the same."""
    if re.search(DDP_SENDS, record.text):
        yield Finding(
            "a parameter or buffer of the model has a dtype that the backend cannot send",
            (record.proof(match, "DDP wraps the model"),),
            Fix(
                f"use {SENT_BY_NCCL_TOO}",
                diff=f'-self.register_buffer("name", values.to(torch.int16))\n'
                f'+self.register_buffer("name", values.to(torch.{SENT_BY_NCCL_TOO}))',
            ),
            record.place,
        )


NUMBERS = {
    **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32"))),
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bfloat16",
}
"""What torch calls its types where it prints their numbers (c10/core/ScalarType.h)."""


@log_pattern(r"Getting size for given data type is not supported: (?P<number>\d{1,2})\b")
def of_gaudi(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The number is torch's own of the type; DDP sends buffers when it wraps the model, and before each forward."""
    dtype = NUMBERS.get(int(match["number"]), f"number {match['number']}")
    yield Finding(
        f"a collective got a tensor of a type that HCCL of Gaudi cards cannot send: {dtype}",
        (record.proof(match, "float32, bfloat16 or int32"),),
        Fix(
            f"use {SENT_BY_NCCL_TOO}, or keep a mask that is the same on all ranks out of what DDP sends",
            diff='-self.register_buffer("mask", mask.to(torch.bool))\n+self.mask = mask   # moved in forward\n'
            "+# or: DistributedDataParallel(model, broadcast_buffers=False)",
            command=f'python -c "from train import build_model; print([n for n, b in build_model().named_buffers() if '
            f"str(b.dtype).endswith('{dtype}')])\"",
        ),
        record.place,
    )
