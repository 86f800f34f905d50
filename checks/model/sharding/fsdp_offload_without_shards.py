"""FSDP is asked to gather to the CPU, and its group does not shard.

## What happens

On a group of one rank, or with ShardingStrategy.NO_SHARD, FSDP1 keeps the whole parameters, and warns: "FSDP is
switching to use `NO_SHARD` instead of ShardingStrategy.FULL_SHARD since the world size is 1". What gathers shards to
the CPU is not written for that: "NotImplementedError: offload_to_cpu=True and NO_SHARD is not supported yet", from
`summon_full_params(offload_to_cpu=True)`, and in older versions from the full state dict. A framework that saves so
(Lightning's FSDPStrategy, Accelerate) ends at its first checkpoint when a training is tried with one GPU.

## How to be sure

The warning above it, or `dist.get_world_size()`; the same training saves with two ranks.

## How to mend it

Start two ranks or more; for one, train without FSDP (`strategy="auto"`, no FSDP plugin). Where it has to be FSDP,
gather without the CPU: `offload_to_cpu=False`, and move the tensors afterwards.

## Versions and sources

Seen with FSDP1 in torch 2.0 to 2.13; measured with 2.13, one rank: the full state dict passes there. Source:
torch/distributed/fsdp/_unshard_param_utils.py; ray-project/ray#37317.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP1594", Severity.ERROR)
SWITCHED = r"FSDP is switching to use `NO_SHARD`[^\n]{0,120}"
LIGHTNING = re.compile(r"lightning[/\\]")


@log_pattern(r"offload_to_cpu=True and NO_SHARD is not supported yet", context=(SWITCHED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The warning tells of the one rank."""
    switched = log.first(SWITCHED)
    yield Finding(
        "FSDP is to gather the parameters to the CPU, and has no shards"
        + (": its group has one rank" if switched else ""),
        (
            record.proof(match, "a group of two ranks or more, which FSDP shards over"),
            *((switched[0].proof(switched[1]),) if switched else ()),
        ),
        Fix(
            "start two ranks or more, or train one without FSDP",
            command="torchrun --nproc_per_node=2 train.py",
            diff='-Trainer(devices=1, strategy="fsdp")\n+Trainer(devices=1, strategy="auto")'
            if LIGHTNING.search(record.text)
            else "-with FSDP.summon_full_params(model, offload_to_cpu=True):\n"
            "+with FSDP.summon_full_params(model, offload_to_cpu=dist.get_world_size() > 1):",
        ),
        record.place,
        ambiguity=None
        if switched
        else Ambiguity(
            ("the group of FSDP has one rank", "the script asks for ShardingStrategy.NO_SHARD"),
            'grep -rn NO_SHARD --include=*.py --include=*.y*ml . ; echo "$WORLD_SIZE"',
        ),
    )
