"""A pipeline schedule is given fewer rows than it has microbatches.

## What happens

A schedule of torch.distributed.pipelining cuts each batch along its first dimension into `n_microbatches` parts. A
batch of fewer rows gives fewer parts: "Expecting 8 arg_mbs but got 6", "Tensor size 6 is smaller than num_chunks". It
comes in the first step, or with the last, smaller batch of a pass; the other stages wait for what this one never sends.

Stages agree on the shape of what they hand on in the first step. Microbatches of different sizes, as of a batch that
does not divide, or of longer sequences, do not fit it: "PipeliningShapeError: Stage 1 forward inputs has a shape
mismatch: expected torch.Size([3, 2048, 256]) actual torch.Size([2, 2048, 256])". In DeepSpeed's PipelineModule it shows
in the backward: "Mismatch in shape: grad_output[0] has a shape of torch.Size([8, 4096]) and output[0] has ... [5,
4096]".

## How to be sure

The message has both numbers: the first dimension is the rows, another one the length.

## How to mend it

Leave the last, smaller batch out (`DataLoader(..., drop_last=True)`), and give the loader a batch size that the number
of microbatches divides. Pad all samples to one length.

## Versions and sources

Seen with torch 2.13. Source: torch/distributed/pipelining/schedules.py, `_check_inputs`; microbatch.py,
`split_args_kwargs_into_chunks`; pytorch/pytorch#126600, deepspeedai/DeepSpeedExamples#790. Holds for torch 2.4 and
later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1596", Severity.ERROR)


@log_pattern(
    r"Expecting (?P<wanted>\d+) (?:arg_mbs|kwarg_mbs|target_mbs) but got (?P<got>\d+)"
    r"|Tensor size (?P<rows>\d+) is smaller than num_chunks"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell both numbers, where they are known."""
    rows, wanted = match["got"] or match["rows"], match["wanted"] or "n_microbatches"
    parts = f"{wanted} microbatches" if match["wanted"] else "more microbatches than that"
    yield Finding(
        f"the pipeline schedule was given a batch of {rows} rows, and has {parts}",
        (record.proof(match, f"at least {wanted} rows"),),
        Fix(
            "leave out the last, smaller batch, or have fewer microbatches",
            diff="-loader = DataLoader(dataset, batch_size=size)\n"
            "+loader = DataLoader(dataset, batch_size=size, drop_last=True)\n"
            f"-schedule = ScheduleGPipe(stage, n_microbatches={wanted})\n"
            "+schedule = ScheduleGPipe(stage, n_microbatches=size)   # at most the rows of a batch",
        ),
        record.place,
    )


SHAPE = r"torch\.Size\(\[(?P<{}>[\d, ]{{1,80}})\]\)"
PIPELINE = re.compile(r"deepspeed[/\\]runtime[/\\]pipe[/\\]|distributed[/\\]pipelining[/\\]|pipeline_parallel[/\\]")


@log_pattern(
    r"Pipelining(?:Shape|Metadata)Error: [^\n]{1,200}?(?:shape mismatch|mismatch)[^\n]{0,80}?(?:expected )?"
    + SHAPE.format("asked")
    + r"(?:,? (?:actual|got)| vs) "
    + SHAPE.format("came")
    + r"|Mismatch in shape: grad_output\[\d+\] has a shape of "
    + SHAPE.format("grad")
    + r" and output\[\d+\] has a shape of "
    + SHAPE.format("output")
)
def of_another_shape(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """What a stage is handed is not what the stages agreed on; autograd's words alone say so of any model."""
    if match["grad"] and not PIPELINE.search(record.text):
        return
    asked, came = (
        [int(each) for each in (match[one] or match[other]).split(",")]
        for one, other in (("asked", "grad"), ("came", "output"))
    )
    rows = len(asked) == len(came) and asked[0] != came[0]
    yield Finding(
        f"a pipeline stage gets a microbatch of another shape than the first: {came} in place of {asked}",
        (record.proof(match, f"{asked} in every microbatch"),),
        Fix(
            "leave out the last, smaller batch, and let the microbatches divide each batch"
            if rows
            else "pad all samples to one length",
            diff="-loader = DataLoader(dataset, batch_size=size)\n"
            "+loader = DataLoader(dataset, batch_size=size, drop_last=True)   # size: a multiple of the microbatches"
            if rows
            else "-pad_sequence(samples, batch_first=True)\n"
            "+F.pad(pad_sequence(samples, batch_first=True), (0, max_length - longest))   # the same in every batch",
        ),
        record.place,
    )
