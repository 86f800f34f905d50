"""Megatron's distributed checkpoint lacks what the model, or its optimizer, wants to load.

## What happens

Megatron-Core asks the checkpoint for each tensor of the model and of the optimizer by its name, and stops at the first
that is not there: "KeyError: decoder.layers... from model not in state dict: [...]", with all names that the checkpoint
has, or "CheckpointingException: Unexpected keys (not found in the checkpoint) encountered in the provided sharded state
dict". A head that is new (a reward model's), adapters of LoRA, another kind of experts or of optimizer, and a model
that is wrapped otherwise than when it was saved, all look like this. So does an old checkpoint in the folder of a new
run.

## How to be sure

The list in the message: the same names with or without `module.`, the names of another layout, or none of the kind.

## How to mend it

Build the model with the options that the checkpoint was saved with. Where the model is to have more, load it loosely,
and the rest stays as it is: `--dist-ckpt-strictness log_all` (log_unexpected takes fewer messages). For weights alone,
without the optimizer and the random state: `--finetune`, or `--no-load-optim --no-load-rng`. For a fresh start, give
`--load` and `--save` an empty folder.

## Versions and sources

Source: Megatron-Core 0.8 to 0.15, dist_checkpointing/strategies/torch.py, `_validate_global_shapes`, and validation.py;
NVIDIA/Megatron-LM#1032. It does not depend on torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP868", Severity.ERROR)
LOOSELY = "... --dist-ckpt-strictness log_all   # what is missing stays as the model was initialised, and is listed"
WEIGHTS = "... --finetune   # weights alone; or --no-load-optim --no-load-rng"
ADAPTER = re.compile(r"\badapter\b|lora_|\.linear_(?:in|out)\.weight$")
SHAPED = re.compile(r"/shard_\d+_\d+$|\._extra_state$")


@log_pattern(
    r"KeyError: [\"']?(?P<key>[\w./-]{3,300}) from model not in state dict(?:: \[(?P<there>[^\]\n]{0,20000})\]?)?"
    r"|Unexpected keys \(not found in the checkpoint\)[^\0]{0,400}?Unexpected keys \(for this rank\): "
    r"\{'(?P<first>[\w./-]{3,300})'"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the name with those that the message lists."""
    key = match["key"] or match["first"]
    there = frozenset(SHAPED.sub("", each) for each in re.findall(r"'([^'\n]+)'", match["there"] or ""))
    other = key.removeprefix("module.") if key.startswith("module.") else f"module.{key}"
    if other in there:
        yield _of_a_prefix(record, match, key, other)
        return
    causes, fix = _causes(key)
    yield Finding(
        f"the checkpoint has no {key}, which the {'optimizer' if _is_optimizers(key) else 'model'} wants to load",
        (record.proof(match, "a tensor in the checkpoint for each that is loaded"),),
        fix,
        record.place,
        ambiguity=Ambiguity(
            causes, "ls FOLDER/*; cat FOLDER/latest_checkpointed_iteration.txt   # FOLDER: that of --load"
        ),
    )


def _is_optimizers(key: str) -> bool:
    return key.startswith(("optimizer.", "chained_"))


def _causes(key: str) -> tuple[tuple[str, ...], Fix]:
    """Return what remains for a name, the likeliest first, and how it is mended."""
    if _is_optimizers(key):
        return (
            "the checkpoint was saved without its optimizer, or with another kind (distributed or not, precision)",
            "an older run's checkpoint lies in the folder",
        ), Fix("load the weights alone, or start with the optimizer that was saved", command=WEIGHTS)
    if ADAPTER.search(key):
        return (
            "the checkpoint is the base model's, and adapters were put into the model before it was loaded",
            "the adapters are of other names, or on other layers, than those that were saved",
        ), Fix("load the base model first, and add the adapters then; or let the rest stay as it is", command=LOOSELY)
    return (
        "the model has a part that was not saved: a new head, more layers, other options than at saving",
        "the same part is kept under another name: other experts (grouped or not), another layer's implementation",
        "the checkpoint is of another model, or an older run's in the same folder",
    ), Fix(
        "build the model with the options of the checkpoint; where it is to have more, let the rest stay as it is",
        command=f"... --use-checkpoint-args\n{LOOSELY}",
    )


def _of_a_prefix(record: Record, match: re.Match[str], key: str, other: str) -> Finding:
    return Finding(
        f"the checkpoint has {other}, and {key} is asked for: the model is wrapped otherwise than when it was saved",
        (record.proof(match, f"{other} asked for"),),
        Fix(
            "take the state from the model itself on both sides, for saving as for loading",
            diff="-state = model.sharded_state_dict()\n"
            "+inner = model.module if hasattr(model, 'module') else model\n+state = inner.sharded_state_dict()",
        ),
        record.place,
    )
