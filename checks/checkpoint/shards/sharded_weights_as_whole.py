"""The checkpoint holds one rank's shards, not the weights.

## What happens

Under FSDP a rank owns a part of every tensor. A file made by `torch.save` of what one rank holds has that part only:
a flat parameter (`_flat_param`, the parameters of a unit end to end; FSDP1), a ShardedTensor (FSDP1,
SHARDED_STATE_DICT or LOCAL_STATE_DICT) or a DTensor (FSDP2, `fully_shard`). A plain model cannot load it: missing
keys, or "aten.copy_.default got mixed torch.Tensor and DTensor". With `strict=False` and flat parameters nothing is
loaded and nothing is raised. With `use_orig_params=True` (FSDP1), the parts have the model's names: of some
parameters all values or some, in one dimension, and size [0] of those that other ranks hold: "size mismatch for
embed.weight: copying a param with shape torch.Size([65667584]) from checkpoint, the shape in current model is
torch.Size([128256, 2048])". If rank 0 alone saved, the other parts are lost. safetensors and save_pretrained refuse
them at once: "Attempted to access the data pointer on an invalid python storage".

## How to be sure

`ddpdoctor inspect last.pt` counts the shards; `{type(v) for v in state.values()}` shows their types.
`ddpdoctor check --checkpoint last.pt --model train.py:build_model` reports an error; without a model it is a warning.

## How to mend it

Best first: save the full state dict, gathered on rank 0 (`get_model_state_dict` with `full_state_dict=True`, called
on all ranks; with the transformers Trainer and Accelerate, `fsdp_state_dict_type: FULL_STATE_DICT`); or save a
distributed checkpoint with `torch.distributed.checkpoint.save`, which
`python -m torch.distributed.checkpoint.format_utils dcp_to_torch` turns into one file.

## Versions and sources

Holds for FSDP1 of all versions of torch and FSDP2 (torch 2.4 and later); `get_model_state_dict` exists since 2.2.
Seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.distributed.checkpoint" and
"FullyShardedDataParallel".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Severity,
    is_flat,
    log_pattern,
    probe,
)

from .._look import few, named, state_dicts
from .._reason import Reason, on_refusal
from .._refusal import refusal

if TYPE_CHECKING:
    from ddpdoctor.check import CheckpointFile, StateDict

AILMENT = Ailment("DDP812", Severity.ERROR)
SAVE = """\
- torch.save(model.state_dict(), path)
+ from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
+ full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
+ if torch.distributed.get_rank() == 0:
+     torch.save(full, path)"""


@probe
def in_the_file(checkpoint: CheckpointFile, model_given: bool) -> Iterator[Finding]:  # noqa: FBT001 - an input of this name
    """Look for parts of tensors; with a model to load into, they are an error."""
    for state_dict in state_dicts(checkpoint):
        parts = [entry.key for entry in state_dict.entries if entry.sharded or is_flat(entry.key)]
        if parts:
            yield Finding(
                f"{len(parts)} of {len(state_dict.entries)} tensors of {named(state_dict)} are {_kind(state_dict)}: "
                "the part of one rank, which no plain model loads",
                (Evidence(few(parts), "whole tensors under the model's names", checkpoint.path),),
                Fix("gather the whole weights on all ranks and save them on rank 0", diff=SAVE),
                place=Place(file=checkpoint.path, key=parts[0]),
                severity=Severity.ERROR if model_given else Severity.WARNING,
            )


@on_refusal(Reason.FLAT_PARTS)
def as_it_is_loaded(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the flat parts that FSDP makes under the names of the model."""
    refused = refusal(record, match, log)
    first = next(shape for shape in refused.shapes if shape.file != "0" and "," in shape.model)
    yield Finding(
        f"the checkpoint holds flat parts, as a rank of FSDP has them: {first.key} is [{first.file}] in it, "
        f"[{first.model}] in the model",
        refused.evidence,
        Fix(
            "the other parts are in what the other ranks wrote, or in a sharded checkpoint beside it; "
            "save the whole weights from now on",
            command="accelerate merge-weights checkpoint/pytorch_model_fsdp_0 whole   # where there is such a folder",
            diff=f"{SAVE}\n or, with the transformers Trainer and Accelerate\n"
            '+trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")\n'
            " trainer.save_model(folder)",
        ),
        record.place,
    )


def _kind(state_dict: StateDict) -> str:
    return "flat parameters of FSDP" if any(map(is_flat, state_dict.keys)) else "shards (DTensor or ShardedTensor)"


@log_pattern(r"RuntimeError: Attempted to access the data pointer on an invalid python storage")
def as_it_is_written(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Safetensors asks each tensor for its memory, and one that is made of others has none."""
    if not re.search(r"safetensors|save_pretrained|storage_ptr|save_file", record.text):
        return
    yield Finding(
        "what is to be written holds tensors without memory of their own: shards, or quantised ones",
        (record.proof(match, "plain tensors, gathered before they are written"),),
        Fix("gather the whole weights on all ranks, and hand them to the writer on rank 0", diff=PRETRAINED),
        record.place,
        ambiguity=Ambiguity(
            (
                "the model is sharded (FSDP2, tensor parallel), and its own state_dict() is written",
                "its weights are of a tensor subclass, as torchao's quantised ones",
            ),
            "grep -rnE 'fully_shard|FSDP\\(|torchao|quantize_' --include=*.py --include=*.y*ml .",
        ),
    )


PRETRAINED = (
    "-model.save_pretrained(folder)\n+state = accelerator.get_state_dict(model)   # on all ranks\n"
    "+accelerator.unwrap_model(model).save_pretrained(folder, state_dict=state, "
    "is_main_process=accelerator.is_main_process)"
)
