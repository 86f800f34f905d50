"""A model that device_map splits over the GPUs is to be trained on several ranks.

## What happens

`from_pretrained(..., device_map="auto")` puts the layers of one model on all visible GPUs, for one process. Data
parallelism wants a whole copy of the model on each rank's own GPU. Accelerate refuses the two together: "You can't
train a model that has been loaded with `device_map='auto'` in any distributed mode", in 8-bit or 4-bit "on multiple
devices in any distributed mode" or "on a different device than the one you're training on". Where nothing refuses, an
operation meets tensors of two GPUs: "Expected all tensors to be on the same device, but found at least two devices".

## How to be sure

`print(model.hf_device_map)` names more than one device, or one that is not the rank's.

## How to mend it

Leave `device_map` out and let the launcher give each rank its GPU; for quantised models
`device_map={"": local_rank}`. To keep the model split, start one process with plain python.

## Versions and sources

Holds for Accelerate 0.20 to 1.15 with torch 2.2 to 2.13. Source: `Accelerator.prepare` in accelerate/accelerator.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from .._logs import beside
from ._devices import CONTEXT, HARD_CODED, IMPLICIT, LOOK, SPLIT, SPREAD, TWO_GPUS, Setting, setting

AILMENT = Ailment("DDP532", Severity.ERROR)
REMEDY = Fix(
    "give each rank the whole model on its own GPU",
    diff='-AutoModelForCausalLM.from_pretrained(name, device_map="auto")\n'
    '+AutoModelForCausalLM.from_pretrained(name, device_map={"": int(os.environ.get("LOCAL_RANK", 0))})',
)


@log_pattern(
    r"You can't train a model that has been loaded (?:with `device_map='auto'` in any distributed mode"
    r"|in [^\n]{1,40} precision on multiple devices in any distributed mode"
    r"|in [^\n]{1,40} precision on a different device than)"
    r"|DeepSpeed Zero-3 is not compatible with [^\n]{0,60}`?device_map`?"
    r"|which is incompatible with DDP\. Maybe you loaded your model with `device_map='auto'`"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise Accelerate's refusals."""
    yield Finding(
        "a model that device_map placed on the GPUs is to be trained on several ranks",
        (record.proof(match, "a whole copy of the model on each rank's own GPU"),),
        REMEDY,
        record.place,
    )


@log_pattern(
    r"only work with single-device/multiple-device GPU modules or CPU modules, but got device_ids \[[^\]\n]*\], "
    r"output_device [^\n]{1,60}?, and module parameters "
    r"\{device\(type='cuda', index=(\d+)\), device\(type='cuda', index=(\d+)\)"
)
def refused_by_ddp(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read on which GPUs the parameters are that DistributedDataParallel is given for one."""
    yield Finding(
        f"the model given to DistributedDataParallel lies on several GPUs (cuda:{match[1]}, cuda:{match[2]}), and "
        "device_ids names one",
        (record.proof(match, "all parameters on the rank's own GPU"),),
        REMEDY,
        record.place,
    )


@log_pattern(TWO_GPUS, context=CONTEXT)
def of_a_split_model(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a split model by Accelerate's hooks, which move the inputs from layer to layer."""
    if setting(record, log) is Setting.SPLIT:
        yield _finding(record, match, beside(record, log, SPLIT))


@log_pattern(TWO_GPUS, context=CONTEXT)
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave the cause open where the log shows nothing of the program."""
    if setting(record, log) is Setting.UNKNOWN and len(set(re.findall(r"cuda:\d+", record.text))) > 1:
        yield _finding(record, match, (), Ambiguity((SPREAD, IMPLICIT, HARD_CODED), LOOK))


def _finding(
    record: Record, match: re.Match[str], shown: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    return Finding(
        "one process uses several GPUs, and an operation got tensors of two of them"
        if ambiguity
        else "a model that is split over several GPUs got tensors of two of them in one operation",
        (record.proof(match, "all tensors on one GPU"), *shown),
        REMEDY,
        record.place,
        ambiguity=ambiguity,
    )
