"""The Trainer is asked for FSDP or DeepSpeed, and the script was started as one process.

## What happens

`TrainingArguments(fsdp="full_shard")` shares the model over the ranks of a distributed training. A script that is
started with `python train.py` is one process without ranks; with several GPUs the Trainer takes DataParallel there. It
refuses: "Using fsdp only works in distributed training." The same happens in a notebook, and where a launcher is asked
for one process and sets no variables.

With DeepSpeed nothing is refused: the configuration's optimizer is a stand-in until DeepSpeed's engine is made, and
where no engine is made, the first step ends in "'DummyOptim' object has no attribute 'step'"; under stage 3 the weights
stay in parts before that ("'weight' must be 2-D").

## How to be sure

Look at the command. The Trainer asks for a distributed training, which it sees by the variables of the launcher:
`echo $RANK $WORLD_SIZE $LOCAL_RANK` in the script's shell shows none.

## How to mend it

    torchrun --nproc_per_node=gpu train.py
    accelerate launch --num_processes 8 train.py

## Versions and sources

Holds for transformers 4.20 to 5.24 with torch 2.2 to 2.13. Sources: transformers/trainer.py,
`Trainer.__init__`; accelerate/utils/deepspeed.py, `DummyOptim`; modelscope/ms-swift#783, hiyouga/LlamaFactory#4557.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP464", Severity.ERROR)


@log_pattern(r"Using fsdp only works in distributed training")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The Trainer looks for the launcher's variables itself."""
    yield Finding(
        "the Trainer is to share the model out (fsdp=...), and runs as one process: no launcher started it",
        (record.proof(match, "RANK, WORLD_SIZE and LOCAL_RANK, which a launcher sets"),),
        Fix(
            "start it by a launcher, one process for each GPU",
            command="torchrun --nproc_per_node=gpu train.py   # or: accelerate launch --num_processes 8 train.py",
        ),
        record.place,
    )


@log_pattern(r"'(?:Partial|Accelerator)State' object has no attribute '(?P<plugin>fsdp|deepspeed)_plugin'")
def of_a_plugin(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Accelerate has the plugin where its launcher, or the script, asked for it."""
    wanted = {"fsdp": "FSDP", "deepspeed": "DeepSpeed"}[match["plugin"]]
    yield Finding(
        f"the script sets what is {wanted}'s, and Accelerate was not asked for {wanted} when it was started",
        (record.proof(match, f"ACCELERATE_USE_{wanted.upper()}=true, which accelerate launch sets"),),
        Fix(
            f"start it with a configuration of {wanted}",
            command=f"accelerate launch --use_{match['plugin']} --num_processes 8 train.py   "
            "# or --config_file, with that distributed_type",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "it was started with python or torchrun, which do not read Accelerate's configuration",
                f"accelerate launch read a configuration without {wanted}, or --multi_gpu took its place",
            ),
            f"accelerate env; echo $ACCELERATE_USE_{wanted.upper()} $WORLD_SIZE",
        ),
    )


@log_pattern(r"'DummyOptim' object has no attribute '(?P<what>step|zero_grad|state_dict)'")
def of_a_stand_in(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Accelerate's stand-in is replaced when DeepSpeed's engine is made."""
    yield Finding(
        "DeepSpeed's engine was never made: the stand-in for the optimizer of its configuration is used itself",
        (record.proof(match, "the optimizer that accelerator.prepare returns"),),
        Fix(
            "start it by a launcher that knows DeepSpeed, and use what prepare returns",
            command="accelerate launch --use_deepspeed --num_processes 8 train.py   # or: deepspeed train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "no launcher started the script, so that Accelerate made no engine",
                "the optimizer was not given to accelerator.prepare, or what prepare returned was not kept",
            ),
            "echo $RANK $WORLD_SIZE $ACCELERATE_USE_DEEPSPEED; grep -n 'prepare(' train.py",
        ),
    )
