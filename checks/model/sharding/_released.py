"""What leaves a weight without its memory where FSDP or ZeRO 3 shards it, and how the causes are told apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Finding, Fix

if TYPE_CHECKING:
    from ddpdoctor.check import Record

BEFORE_FORWARD = (
    "the script calls the module that was wrapped, or a method of it, in place of the wrapper",
    "an auto-wrap policy put the layer into a unit other than the one whose forward uses it (tied weights)",
    "under ZeRO 3 the weight is read outside of a forward (deepspeed.zero.GatheredParameters)",
)
BEFORE_BACKWARD = (
    "activation checkpointing is around the wrapper in place of inside of it, or reentrant",
    "two forwards were made before this backward, or a second backward goes through the same graph",
    "an autograd.Function kept a view of the weight (weight.t()), and the wrapper's hooks do not see its backward",
    BEFORE_FORWARD[0],
)
SEARCH = (
    "grep -rnE 'FSDP\\(|FullyShardedDataParallel\\(|fully_shard\\(|\\.module\\.|zero3|stage.?3|checkpoint_wrapper|"
    "use_reentrant|save_for_backward' --include=*.py ."
)
PARTLY = "a loss that a part of the units takes no part in, or that no wrapper's forward made (a discriminator, a turn)"
OF_A_STATE = re.compile(r"[/\\\\]fsdp[/\\\\]_(?:state_dict_utils|unshard_param_utils|optim_utils)\.py")


def of_state_dict(record: Record, match: re.Match[str]) -> Finding | None:
    """Return what is said where FSDP1 gathers a whole state on the CPU, and frees what it was to move there.

    With ``offload_to_cpu`` it moves what it has gathered to the CPU and releases it on the GPU: on a CPU both are one.
    """
    if not OF_A_STATE.search(record.text) or "unflatten_as_params" not in record.text:
        return None
    return Finding(
        "the state of a model on the CPU is asked for with offload_to_cpu=True: FSDP releases the gathered weights, "
        "which are the same memory there",
        (record.proof(match, "weights that are gathered on a GPU, or no offload_to_cpu"),),
        Fix(
            "ask for the state without offload_to_cpu where the model is on the CPU",
            diff="-FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n+FullStateDictConfig(rank0_only=True)",
        ),
        record.place,
    )
