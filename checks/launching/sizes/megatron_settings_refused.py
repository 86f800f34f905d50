"""Megatron-LM refuses the options of the launch: they contradict each other, the launch, or the environment.

## What happens

Megatron looks through all options before it starts (`validate_args`, and the checks of its configurations), and ends
every rank by an assertion or a ValueError that names the rule: "When using pipeline parallelism, pipeline_dtype must be
specified", "Can not use sequence parallelism without tensor parallelism", "pipeline-model-parallel size should be
greater than 1 with interleaved schedule", "num_moe_experts must be non None to use expert-parallel", "Using tensor
model parallelism or context parallelism require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1".
"The number of contiguous micro-batches in a virtual pipeline stageshould range in [PP=6 , M=3]" comes with the first
step: of 6 stages and 3 micro-batches.

The distributed optimizer cuts its buffers into as many shards as there are data parallel ranks: "assert buffer.numel()
% data_parallel_world_size == 0", without words, was seen with an odd number of them (NVIDIA/Megatron-LM#792).

## How to be sure

The message is the rule. Megatron prints all options above it, between two lines of dashes ("arguments").

## How to mend it

Change one of the two options that the rule names. CUDA_DEVICE_MAX_CONNECTIONS is to be 1 for tensor, context and
sequence parallelism on GPUs before Blackwell, so that communications start in their order, and another value, or none,
for FSDP; it is read when CUDA starts, so it belongs into the launch, and not into the script.

## Versions and sources

Holds for Megatron-LM and Megatron Core 0.5 and later (megatron/training/arguments.py, megatron/core), and for what is
built on them: NeMo, Megatron-Bridge, verl, ms-swift. No version of torch changes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Role, Severity, log_pattern

from .parallel_sizes_mismatch import LAYERS

AILMENT = Ailment("DDP485", Severity.ERROR)
LOOKED_THROUGH = re.compile(r"megatron[/\\](?:\w+[/\\])*(?:arguments|\w*config)\.py")
CONNECTIONS = r"CUDA_DEVICE_MAX_CONNECTIONS"
ANY = r"(?:AssertionError|ValueError|RuntimeError): (?P<rule>[^\n]{1,400})"
RULES = (
    r"(?:AssertionError|ValueError|RuntimeError): "
    r"(?P<one>[^\n]{0,160}requires? (?:setting the environment variable )?CUDA_DEVICE_MAX_CONNECTIONS[^\n]{0,80}"
    r"|(?:When using (?:pipeline parallelism|bf16), )?pipeline_dtype must be specified[^\n]{0,80}"
    r"|Can ?not use sequence paral+elism without tensor parallelism"
    r"|(?:When interleaved schedule is used, )?pipeline-model-parallel size should be greater than [12][^\n]{0,80}"
    r"|num_(?:moe_)?experts must be non None to use expert[- ](?:model )?parallel(?:ism)?"
    r"|--(?:overlap-param-gather|use-torch-fsdp2|ckpt-format|use-distributed-optimizer)\b[^\n]{0,40}"
    r" (?:only supported|not supported|requires)\b[^\n]{0,120}"
    r"|The number of contiguous micro-batches in a virtual pipeline stage ?should range in \[PP=\d+ ?, M=\d+\])"
)
MICROBATCHES = re.compile(r"range in \[PP=(?P<stages>\d+) ?, M=(?P<count>\d+)\]")
OF_GPUS = Fix(
    "set it in the launch, before Python starts", command="CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun ... pretrain_gpt.py"
)
OF_FSDP = Fix("take it out of the launch", command="unset CUDA_DEVICE_MAX_CONNECTIONS")
PIPELINE = Fix(
    "say in which type the stages send their activations: that of the parameters",
    diff="-pipeline_model_parallel_size=2,\n+pipeline_model_parallel_size=2,\n+pipeline_dtype=torch.bfloat16,",
)
BOTH = Fix(
    "change one of the two settings that the rule names",
    command="grep -nE -- '--[a-z-]+(parallel|size|overlap|fsdp|dtype|experts)' pretrain.sh",
)
FIXES = (
    (r"> ?1 or unset|value larger? than one", OF_FSDP),
    (CONNECTIONS, OF_GPUS),
    (r"pipeline_dtype", PIPELINE),
    (r"sequence paral", Fix("leave it out, or share the layers out", command="... --tensor-model-parallel-size 2")),
    (
        r"interleaved schedule",
        Fix(
            "leave the virtual stages out, or take more stages",
            command="... --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
        ),
    ),
    (r"num_(?:moe_)?experts", Fix("give the number of experts", command="... --num-experts 8")),
)


@log_pattern(RULES)
def by_its_words(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Know the commonest rules, also where a log holds no traceback."""
    yield _refused(record, match, match["one"])


@log_pattern(ANY, role=Role.GENERIC)
def by_its_place(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Take any rule of the functions that look through the options: the innermost frame is theirs."""
    inner = record.frames[-1] if record.frames else None
    if inner is None or not LOOKED_THROUGH.search(inner.file) or re.search(f"{RULES}|{LAYERS}", match[0]):
        return
    yield _refused(record, match, match["rule"])


@log_pattern(r"assert (?:self\.)?(?:buffer\.)?numel(?:\(\))? % (?:self\.)?data_parallel_world_size == 0")
def of_a_buffer(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """An assertion without words, of the distributed optimizer's buffer."""
    yield Finding(
        "Megatron's distributed optimizer cannot cut a buffer into equal shards, one for each data parallel rank",
        (record.proof(match, "a number of data parallel ranks that its padding provides for"),),
        Fix(
            "take an even number of data parallel ranks, a newer Megatron Core, or no distributed optimizer",
            command="pip show megatron-core | grep Version\n"
            "# data parallel ranks = GPUs / (tensor x pipeline x context)\n"
            "grep -n use-distributed-optimizer pretrain.sh",
        ),
        record.place,
    )


def _refused(record: Record, match: re.Match[str], rule: str) -> Finding:
    if (found := MICROBATCHES.search(rule)) and int(found["stages"]) > int(found["count"]):
        return _too_few_microbatches(record, match, int(found["stages"]), int(found["count"]))
    return Finding(
        f"Megatron refuses the settings: {rule.strip()}",
        (record.proof(match, "settings that keep this rule"),),
        next((fix for pattern, fix in FIXES if re.search(pattern, rule)), BOTH),
        record.place,
    )


def _too_few_microbatches(record: Record, match: re.Match[str], stages: int, count: int) -> Finding:
    """Explain a rule that names a range from which nothing can be taken."""
    return Finding(
        f"the {stages} stages of the interleaved pipeline get {count} micro-batches a step, and need {stages} or more",
        (record.proof(match, f"{stages} micro-batches or more"),),
        Fix(
            "make a step of more micro-batches, or leave the virtual stages out; "
            "micro-batches = global batch / (micro batch x data parallel ranks)",
            command=f"... --global-batch-size $((MICRO_BATCH * DATA_PARALLEL * {stages}))   # or a multiple of it",
        ),
        record.place,
    )
