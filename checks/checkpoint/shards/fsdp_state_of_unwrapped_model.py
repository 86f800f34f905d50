"""The state of a sharded model is asked of a model that holds no FullyShardedDataParallel.

## What happens

`FSDP.state_dict_type(model, ...)`, `FSDP.set_state_dict_type` and `FSDP.optim_state_dict` go through the units of
FullyShardedDataParallel within the model. Where there is none, torch fails with an error that does not say so:
"KeyError: None" in set_state_dict_type, as the block is left, "'NoneType' object has no attribute
'optim_state_dict_config'", or "IndexError: list index out of range" in _optim_state_dict_impl.

The transformers Trainer with Accelerate loads a checkpoint, to resume from it or for the best model. Versions of 2023
did so before they had wrapped the model: "KeyError: None" below `load_fsdp_model`; or, on all ranks but the first, "Set
the `sync_module_states` flag to `True` so that model states are synced across processes when initializing FSDP object":
rank 0 alone reads, and the wrapping is to hand the values on.

## How to be sure

    print(FSDP.fsdp_modules(model))     # [] is what these errors come from

That is so of a model that was never wrapped (one GPU, a branch that wraps only with several ranks), of the model as it
was before FSDP(...) returned another one, and of one that fully_shard (FSDP2) shards.

## How to mend it

Hand over what FSDP(...) returned; or use the functions that take a model however it is wrapped, on all ranks:

    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)

## Versions and sources

Each of the errors was seen with torch 2.13 (CPU, gloo). get_state_dict holds for torch 2.2 and later. Source:
torch/distributed/fsdp/fully_sharded_data_parallel.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP817", Severity.ERROR)
OF_FSDP = re.compile(r"[/\\]fsdp[/\\]fully_sharded_data_parallel\.py")
IN = re.compile(r"\bin (?:set_state_dict_type|optim_state_dict|_optim_state_dict_impl)\b")
FIX = Fix(
    "hand over what FSDP(...) returned, or ask the functions that take a model however it is wrapped, on all ranks",
    diff="+from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict\n"
    "+options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
    "+model_state, optimizer_state = get_state_dict(model, optimizer, options=options)\n"
    "-with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT): ...",
)


@log_pattern(
    r"KeyError: None$|AttributeError: 'NoneType' object has no attribute 'optim_state_dict_config'"
    r"|IndexError: list index out of range$"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise by the innermost frame that torch looked for units of FSDP, and found none."""
    inner = record.frames[-1] if record.frames else None
    if inner is None or not OF_FSDP.search(inner.file) or not IN.search(f"in {inner.function}"):
        return
    if "_load_from_checkpoint" in record.text and "load_fsdp_model" in record.text:
        yield _of_the_trainer(record, match)
        return
    yield Finding(
        f"the model that FSDP's {inner.function} is asked about holds no FullyShardedDataParallel",
        (record.proof(match, "a model that FSDP(...) returned, or one that holds such units"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (
                "the model was not wrapped in this run: one GPU, or a branch that wraps with several ranks only",
                "the model from before FSDP(...) was handed over, in place of what it returned",
                "fully_shard (FSDP2) shards it, whose models these functions do not know",
            ),
            "grep -nE 'FSDP\\(|FullyShardedDataParallel\\(|fully_shard\\(|state_dict_type|optim_state_dict' *.py",
        ),
    )


@log_pattern(r"Set the `sync_module_states` flag to `True` so that model states are synced across processes")
def of_accelerate(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A rank that is not the first has an unwrapped model, and nothing that hands it the values of rank 0."""
    yield Finding(
        "a full checkpoint is loaded before FSDP wraps the model: rank 0 alone reads it, and nothing shares it",
        (record.proof(match, "sync_module_states, or a model that is wrapped first"),),
        Fix(
            "let FSDP hand the values of rank 0 on as it wraps; with the Trainer, also upgrade what loads too early",
            command="pip install --upgrade transformers accelerate",
            diff=" fsdp_config:   # of accelerate's configuration\n+  fsdp_sync_module_states: true",
        ),
        record.place,
    )


def _of_the_trainer(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        "this Trainer loads the checkpoint into the model before it has wrapped it by FSDP",
        (record.proof(match, "a Trainer that wraps first"),),
        Fix(
            "upgrade both: newer versions wrap the model before they load",
            command="pip install --upgrade transformers accelerate",
        ),
        record.place,
    )
