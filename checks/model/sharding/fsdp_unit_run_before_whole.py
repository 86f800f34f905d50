"""A unit of FSDP ran before the whole model did, and so became a root of its own.

## What happens

FSDP1 finds out late who is the outermost unit, the root: it is the one whose forward, or state dict, is asked for
first. Where that is an inner unit, the outer one later finds another root within itself: "AssertionError: Non-root FSDP
instance's `_is_root` should not have been set yet or should have been set to `False`". It takes one call past the whole
model: `model.module.encoder(x)`, `model.module[0].state_dict()`, `no_sync()` or `clip_grad_norm_()` of a part. A model
that has run under FSDP already and is wrapped once more (prepared twice, a reference model that a trainer prepares
again) ends in the same way.

## How to be sure

The assertion comes in the first forward, `no_sync` or state dict of the outer model. Above it in the script a part was
called, or the model was prepared before.

## How to mend it

Call the outer model first, and let its forward choose what is computed. Wrap, or prepare, each model once. Where a part
has to run by itself before, do not wrap the whole once more, or use `fully_shard` (FSDP2).

## Versions and sources

Measured with torch 2.13, gloo, two ranks: a unit called first, a unit's state dict, and a model that ran and was
wrapped once more. Source: torch/distributed/fsdp/_runtime_utils.py, `_lazy_init`; huggingface/accelerate#3258,
huggingface/trl#1704, LeapLabTHU/JustGRPO#1. Holds for torch 2.0 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1593", Severity.ERROR)
CALLS = (
    (re.compile(r"in (?:no_sync|accumulate)\b"), "no_sync()"),
    (re.compile(r"in \w*state_dict\w*\b"), "the state dict"),
    (re.compile(r"in summon_full_params\b"), "summon_full_params()"),
)


@log_pattern(r"AssertionError: Non-root FSDP instance's `_is_root` should not have been set yet")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say what of the outer model met the other root."""
    asked = next((said for pattern, said in CALLS if pattern.search(record.text)), "the forward")
    yield Finding(
        f"{asked} of the whole model finds a part that is an FSDP root already: it ran, or gave its state, before",
        (record.proof(match, "the outermost FSDP unit first, in each run"),),
        Fix(
            "call the whole model in place of a part, and wrap or prepare each model once",
            diff="-hidden = model.module.encoder(inputs)\n+hidden = model(inputs, encode_only=True)\n"
            "or\n-reference = trainer.accelerator.prepare(reference)\n"
            "+reference = build_model()   # one that was not prepared yet",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the script called a wrapped part, or a method of it (state_dict, no_sync, clip_grad_norm_), before",
                "a model that had run under FSDP was wrapped once more: prepared twice, or by two libraries",
            ),
            "grep -rnE 'FSDP\\(|FullyShardedDataParallel\\(|\\.prepare\\(|\\.module\\b' --include=*.py .",
        ),
    )
