"""A layer's weights are of half the precision, and its input is not.

## What happens

DeepSpeed's engine with `"bf16": {"enabled": true}` (or fp16), a model that was cast (`.half()`, `torch_dtype=...`), and
FSDP's MixedPrecision hold weights of bfloat16 or float16. Batches come from the loader as float32, and the first layer
refuses both together: "Input type (float) and bias type (c10::BFloat16) should be the same", "mat1 and mat2 must have
the same dtype". The other way round, a loss or a head of float32 is given what the model returned.

## How to be sure

The message names both types. Print `x.dtype` and `next(model.parameters()).dtype` above the line.

## How to mend it

Cast the batch where it comes from the loader, or let autocast do it:

    x = x.to(next(engine.parameters()).dtype)

DeepSpeed also has `"torch_autocast": {"enabled": true, "dtype": "bfloat16"}` in the place of `bf16`, which leaves the
weights as they are.

## Versions and sources

Seen with DeepSpeed 0.19.8 and torch 2.13. Source: torch's aten/src/ATen/native/Convolution.cpp, LinearAlgebra.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1589", Severity.ERROR)
TYPE = r"[\w.:]*(?:[Ff]loat|[Hh]alf|[Dd]ouble|BFloat)\w*"


@log_pattern(
    rf"RuntimeError: (?:Input type \((?P<input>{TYPE})\) and (?:bias|weight) type \((?P<weight>{TYPE})\) should be the"
    rf" same|mat1 and mat2 must have the same dtype, but got (?P<left>{TYPE}) and (?P<right>{TYPE})"
    rf"|expected m(?:at)?1 and m(?:at)?2 to have the same dtype, but got: (?P<one>{TYPE}) != (?P<other>{TYPE}))",
    plain=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report both types."""
    given, held = (each for each in match.groups() if each is not None)
    yield Finding(
        f"a layer is given {_short(given)}, and its weights are {_short(held)}",
        (record.proof(match, "an input of the weights' type"),),
        Fix(
            "cast the batch to the type of the weights, or let autocast do it",
            diff="+inputs = inputs.to(next(model.parameters()).dtype)   # model: the engine, with DeepSpeed\n"
            " outputs = model(inputs)",
        ),
        record.place,
    )


def _short(name: str) -> str:
    return name.rpartition("::")[2].removeprefix("torch.").removesuffix("Tensor")
