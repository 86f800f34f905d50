"""A pipeline stage hands on another data type than the next one was built for.

## What happens

The stages of torch.distributed.pipelining know beforehand which tensors they receive, by the example that they were
built with or by the first step, and make buffers of that type. A stage that computes in another one (autocast or
`model.to(bfloat16)` on some stages, a mixed precision of FSDP within one stage) is refused: "PipeliningShapeError:
Stage 1 forward input argument 0 has a dtype mismatch: expected torch.float32 actual torch.bfloat16", in torch 2.13
"PipeliningMetadataError: ...: dtype mismatch: torch.float32 vs torch.bfloat16". Without the check, bytes of the one
type are read as the other.

## How to be sure

    print(stage.stage_index, next(stage.submod.parameters()).dtype, torch.is_autocast_enabled())   # on each rank

## How to mend it

Give all stages one precision, and build them with an example of the type that they really get.

## Versions and sources

Holds for torch 2.4 to 2.13. Source: torch/distributed/pipelining/_utils.py, `validate_metadata`;
pytorch/pytorch#129732.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1598", Severity.ERROR)


@log_pattern(
    r"Pipelining(?:Shape|Metadata)Error: (?P<what>[^\n]{1,300}?)(?: has a|:|;) dtype mismatch: (?:expected )?"
    r"torch\.(?P<asked>\w{1,20})(?:,? (?:actual|got)| vs) torch\.(?P<came>\w{1,20})"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Both types stand in the message; the stage is named before them."""
    stage = re.search(r"[Ss]tage \d+", match["what"])
    yield Finding(
        f"{stage[0].lower() if stage else 'a pipeline stage'} gets {match['came']}, and was built for {match['asked']}",
        (record.proof(match, f"{match['asked']} from the stage before, as in the example that it was built with"),),
        Fix(
            "give all stages one precision, and build each with an example of the type that it gets",
            diff="-stage = PipelineStage(module, index, stages, device, input_args=example)\n"
            f"+stage = PipelineStage(module.to(torch.{match['came']}), index, stages, device, "
            f"input_args=example.to(torch.{match['came']}))",
        ),
        record.place,
    )
