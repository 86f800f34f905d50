"""A parameter that ZeRO 3 has partitioned is read where nobody has gathered it.

## What happens

Under ZeRO stage 3 a parameter is an empty tensor of size [0] but while the forward or the backward of its own module
runs. Code that reads it elsewhere, such as a penalty on weights, a loss by `F.linear(x, model.head.weight)`, an
initialisation, or a comparison with another model, gets that tensor: "size mismatch, got input (4), mat (4x16), vec
(0)", "The size of tensor a (0) must match the size of tensor b (64)", "index 0 is out of bounds for dimension 0 with
size 0"; an embedding says "'weight' must be 2-D". Sums and means raise nothing, and are 0 or nan.

## How to be sure

The error names a size of 0, or a vector in place of a matrix. In a running training (`ddpdoctor run`) an engine of ZeRO
3 holds the model, and the error comes of a line of the script's own; in a log, the traceback goes through DeepSpeed's
ZeRO, or the log says that stage 3 is in use. Small parameters stay whole (`stage3_param_persistence_threshold`, 100000
elements), so that small models show nothing.

## How to mend it

Read within `with deepspeed.zero.GatheredParameters(parameters):`, on all ranks; what is to have a gradient is computed
in a forward of the module.

## Versions and sources

Source: DeepSpeed documentation, "ZeRO", manual parameter coordination. Seen with DeepSpeed 0.19 and torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Failed,
    Finding,
    Fix,
    FrameworkSeen,
    Log,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    watch,
)

from .._logs import beside

AILMENT = Ailment("DDP1526", Severity.ERROR)
EMPTY = (
    r"(?:RuntimeError|IndexError): (?:size mismatch, got input \(\d+\), mat \(\d+x\d+\), vec \(0\)"
    r"|mat2 must be a matrix, got 1-D tensor|inconsistent tensor size, expected tensor \[0\]"
    r"|The size of tensor a \((?:0\) must match|\d+\) must match the size of tensor b \(0\))"
    r"|index \d+ is out of bounds for dimension 0 with size 0)"
)
SAID = re.compile(EMPTY)
THROUGH = re.compile(r"deepspeed[/\\]runtime[/\\]zero[/\\]")
STAGE = r"ZeRO[- ]?(?:stage )?3\b|zero_?optimization_?stage[ .=:]+3\b|[\"']?stage[\"']?: 3\b"
SHARDED = STAGE + r"|[/\\]distributed[/\\]fsdp[/\\]|\bFSDP\b|FullyShardedDataParallel"
PAST_THE_ENGINE = (
    "ZeRO 3 has partitioned it, and the model is called past the engine, or no engine was made of it: no launcher "
    "started the script, or a model of its own (a reference, a teacher) was never prepared"
)
OF_ANOTHER = (
    "a module reads a parameter that another one has (register_external_parameter), or one that was made after "
    "deepspeed.initialize"
)
PARTITIONED = 3  # the stage that takes the parameters apart
FIX = Fix(
    "gather it, on all ranks, where it is read; what is to have a gradient belongs into the module's forward",
    diff="-penalty = model.head.weight.norm()\n+with deepspeed.zero.GatheredParameters([model.head.weight]):\n"
    "+    norm = model.head.weight.norm()",
)


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Look at an error about an empty tensor, where an engine of ZeRO 3 holds the model."""
    engines = [each for each in training.of(FrameworkSeen, pid=event.pid) if each.stage == PARTITIONED]
    if engines and SAID.search(event.text) and not THROUGH.search(event.text):
        yield Finding(
            "a parameter is read where ZeRO 3 has not gathered it: it is an empty tensor there",
            (
                Evidence(event.said, "the parameter as the module has it", f"rank {event.rank}"),
                Evidence("DeepSpeed's engine, ZeRO 3", "", str(engines[-1].site)),
            ),
            FIX,
            place(event.site, rank=event.rank),
        )


@log_pattern(
    r"AssertionError: \{'id': \d+, 'status': '(?P<status>\w+)', 'numel': \d+, 'ds_numel': \d+, 'shape': "
    r"[^\n]{0,300}?'active_sub_modules': (?:\{(?P<modules>[^}\n]{0,200})\}|set\(\))"
)
def at_its_turn(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """DeepSpeed asserts that a parameter is there when it is used, and in no use when it is taken apart."""
    used, by = match["status"] == "AVAILABLE", record.users
    where = f" (in {by.function})" if by else ""
    yield Finding(
        f"ZeRO 3 is to take a parameter apart that a module still uses{where}"
        if used
        else f"ZeRO 3 is to use a parameter that is not gathered ({match['status']}){where}",
        (
            record.proof(
                match, "each forward ends before its parameters are taken apart, and goes the same way on all ranks"
            ),
        ),
        Fix(
            "let no forward run across the border of a GatheredParameters block, nor past the engine",
            diff="-with deepspeed.zero.GatheredParameters(model.parameters()):\n-    output = model.module(inputs)\n"
            "+output = engine(inputs)   # the engine gathers and releases, module by module",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a module is called within a GatheredParameters block, or the block is left while it runs",
                "a forward was left by an exception that was caught, so that its parameters count as in use",
                "modules are called in another order than in the step before: a branch by the batch, or a cache",
                *(() if used else (OF_ANOTHER,)),
            ),
            "grep -rnE 'GatheredParameters|unwrap_model|[.]module[.]|except ' --include=*.py .",
        ),
    )


@log_pattern(EMPTY, context=(STAGE,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Look whether the traceback goes through ZeRO, or the log says that stage 3 is in use."""
    through, shown = THROUGH.search(record.text), log.first(STAGE)
    if record.users is None or (through is None and shown is None):
        return
    yield Finding(
        "a parameter is read where ZeRO 3 has not gathered it: it is an empty tensor there",
        (
            record.proof(match, "the parameter as the module has it"),
            *((record.proof(through),) if through else (shown[0].proof(shown[1]),) if shown else ()),
        ),
        FIX,
        record.place,
    )


@log_pattern(r"RuntimeError: 'weight' must be 2-D", context=(SHARDED,), plain=True)
def of_an_embedding(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """An embedding's weight that is no matrix: an empty vector under ZeRO 3, a flat one under FSDP."""
    through = THROUGH.search(record.text)
    shown = (record.proof(through),) if through else beside(record, log, SHARDED)
    yield Finding(
        "an embedding is read whose weight is no matrix"
        + (": the model is shared out, and nobody has gathered it there" if shown else ""),
        (record.proof(match, "a weight of shape [words, size]"), *shown),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (
                PAST_THE_ENGINE,
                "FSDP has made it flat, and the module is called outside the forward of the wrapped model",
            ),
            "print(model.get_input_embeddings().weight.shape)   # above that line: [0] is ZeRO 3, [N] is FSDP",
        ),
    )


@log_pattern(
    r"Trying to set a tensor of shape torch\.Size\(\[(?P<shape>[\d, ]{1,60})\]\) in \"(?P<name>\w{1,60})\" "
    r"\(which has shape torch\.Size\(\[0\]\)\)"
)
def while_weights_are_loaded(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Transformers sets a weight by itself, and ZeRO 3 has partitioned the parameter when it was made."""
    yield Finding(
        f"a weight of [{match['shape']}] is loaded into a parameter that ZeRO 3 has partitioned already: it is empty",
        (record.proof(match, f"a parameter of [{match['shape']}]"),),
        Fix(
            "load quantised weights without ZeRO 3's way of making a model, or train with ZeRO 2",
            diff='-"zero_optimization": {"stage": 3}\n+"zero_optimization": {"stage": 2}\n'
            "or, in accelerate's configuration\n-  zero3_init_flag: true\n+  zero3_init_flag: false",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the weights are quantised (load_in_4bit, load_in_8bit), which transformers loads past ZeRO 3",
                "low_cpu_mem_usage=True or device_map is set beside ZeRO 3",
            ),
            "grep -rnE 'load_in_(4|8)bit|low_cpu_mem_usage|device_map|zero3_init_flag' .",
        ),
    )
