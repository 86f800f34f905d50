"""The shards that Megatron's ranks ask a distributed checkpoint for do not fit together, or not the checkpoint.

## What happens

Each rank describes the parts of each tensor that it loads or saves: a ShardedTensor with its place in the whole.
Megatron-Core adds up what all ranks describe. Where a part is asked for by no rank, or by two, it stops with
"CheckpointingException: Invalid access pattern for ShardedTensor(key=...": the ranks were grouped otherwise than the
model was built (another tensor parallel size in the options than in the model's configuration, say), or a state was
made on some ranks alone. For objects, as the extra states of FP8, it says "ShardedObject are missing" or "Duplicate
ShardedObject keys".

"Cannot find global shape metadata for N-D flattened tensor" is about the checkpoint: a distributed optimizer wants
parts of flattened tensors, and their whole shapes are kept beside them only where a distributed optimizer has saved.
A checkpoint that was converted (from Hugging Face, say), or saved without that optimizer, has none.

The older format (`--ckpt-format torch`) has one flat buffer for each data type, padded so that the data parallel ranks
of that run divide it. Where the ranks of another run pad it to another length, `load_parameter_state` ends with "The
size of tensor a (53886976) must match the size of tensor b (53886720)" on one rank, and the others wait for its
scatter.

## How to be sure

The message names the tensor, its whole shape, this rank's part and `axis_fragmentations`, the number of parts along
each axis: tensor parallel ranks that are more or fewer than that number are what does not fit.

## How to mend it

Give the run the sizes that the model was built with, all ranks alike, and make the sharded state on all ranks. Of a
checkpoint without shapes, load the weights alone.

## Versions and sources

Source: Megatron-Core 0.5 to 0.15, dist_checkpointing/validation.py and strategies/torch.py. Seen in
NVIDIA-NeMo/Speech#8460, NVIDIA-NeMo/Speech#13913 and, of the older format, NVIDIA/Megatron-LM#659; not run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1885", Severity.ERROR)
SHARD = r"ShardedTensor\(key='(?P<key>[^'\n]{1,300})'(?:[^\n]{0,300}?axis_fragmentations=\((?P<parts>[\d, ]{1,60})\))?"
GRADUALLY = "... --no-load-optim --no-load-rng   # or --finetune: the weights alone; NeMo: load_optim_state=False"


@log_pattern(
    rf"Invalid access pattern(?: for {SHARD}|: (?P<objects>-?\d+) ShardedObject are missing)"
    r"|CheckpointingException: Duplicate ShardedObject keys: \['?(?P<twice>[^'\]\n]{1,300})"
)
def of_the_ranks(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Rank 0 has compared what all ranks describe: the checkpoint itself was not asked yet."""
    key = match["key"] or match["twice"]
    said = f"the parts of {key} that the ranks describe" if key else "the extra states that the ranks describe"
    parts = f" (it is cut into {match['parts'].strip(' ,')} parts along its axes)" if match["parts"] else ""
    yield Finding(
        f"{said} do not add up to the whole{parts}: some part has no rank, or two",
        (record.proof(match, "each part of each tensor on one rank of each data parallel group"),),
        Fix(
            "give the run the sizes that the model was built with, and make the sharded state on all ranks",
            command="grep -rnE 'tensor_model_parallel_size|pipeline_model_parallel_size|expert_model_parallel_size' "
            "CONFIG   # beside those of the launch",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the model was built with other parallel sizes than its process groups were made with",
                "a part of the state is made on some ranks alone, or left out on some",
                "a module's own sharded_state_dict gives two ranks one place, or one replica_id",
            ),
            "grep -nE 'model-parallel size' LOG   # what the launch has printed, beside the model's own configuration",
        ),
    )


@log_pattern(rf"Cannot find global shape metadata for N-D flattened tensor {SHARD}")
def of_the_checkpoint(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The checkpoint has the tensor, and not the shape that its flattened parts are made from."""
    yield Finding(
        f"the checkpoint does not say how {match['key']} was cut when it was flattened, which the distributed "
        "optimizer wants to know",
        (record.proof(match, "a checkpoint that a run with a distributed optimizer has saved"),),
        Fix("load the weights alone, and let the optimizer begin anew", command=GRADUALLY),
        record.place,
        ambiguity=Ambiguity(
            (
                "the checkpoint was converted from another format, or saved without the distributed optimizer",
                "it was saved with another kind of sharding (FSDP of Megatron, fully sharded or not)",
                "a file of the checkpoint is of another save: metadata and parts do not belong together",
            ),
            "ls -la FOLDER; cat FOLDER/metadata.json; ddpdoctor inspect FOLDER",
        ),
    )


@log_pattern(r"The size of tensor a \((?P<here>\d+)\) must match the size of tensor b \((?P<saved>\d+)\)")
def of_a_flat_buffer(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The older format pads its buffers to what the ranks of the run that saves divide."""
    if "in load_parameter_state" not in record.text:
        return
    yield Finding(
        f"the optimizer state of the checkpoint is a flat buffer of another length, {match['saved']} and here "
        f"{match['here']}: it was padded for another number of data parallel ranks",
        (record.proof(match, "as many data parallel ranks as at saving, or a format that does not depend on them"),),
        Fix(
            "start as many ranks as saved it; save in the distributed format for other numbers; or begin the optimizer "
            "anew",
            command="... --ckpt-format torch_dist   # at saving\n"
            "... --no-load-optim --no-load-rng   # the weights alone",
        ),
        record.place,
    )
