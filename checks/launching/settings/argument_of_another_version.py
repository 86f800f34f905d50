"""A class of an installed package is given an argument that the installed version does not take.

## What happens

Each rank ends by "TypeError: Trainer.__init__() got an unexpected keyword argument 'gpus'" before the first step. The
script, or another package, is written for another version: Lightning 2.0 took `gpus` away, transformers 4.46 renamed
`evaluation_strategy`, and transformers gives Accelerator arguments that newer versions of accelerate no longer have.

## How to be sure

The traceback ends where the call is made: in the script, or in a package that calls another one.

## How to mend it

Use the argument of the installed version, or install the version that the caller was written for.

## Versions and sources

Sources: Lightning, "Upgrade from 1.9 to 2.0"; transformers, MIGRATION_GUIDE and release notes of 4.41 to 5.0;
accelerate, release notes of 0.31 and 1.0. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP436", Severity.ERROR)
PACKAGES = {
    "Accelerator": "accelerate",
    "TrainingArguments": "transformers",
    "Seq2SeqTrainingArguments": "transformers",
    "Seq2SeqTrainer": "transformers",
    "SFTTrainer": "trl",
    "SFTConfig": "trl",
    "DPOTrainer": "trl",
    "DPOConfig": "trl",
    "GRPOTrainer": "trl",
    "GRPOConfig": "trl",
    "LoraConfig": "peft",
    "FullyShardedDataParallel": "torch",
    "init_process_group": "torch",
    "LLM": "vllm",
    "EngineArgs": "vllm",
    "Linear4bit": "bitsandbytes",
    "Linear8bitLt": "bitsandbytes",
    "Params4bit": "bitsandbytes",
}
NOW = {
    "gpus": "accelerator='gpu', devices=...",
    "tpu_cores": "accelerator='tpu', devices=...",
    "num_processes": "accelerator='cpu', devices=...",
    "distributed_backend": "strategy='ddp'",
    "evaluation_strategy": "eval_strategy='steps'",
    "tokenizer": "processing_class=tokenizer",
    "resume_from_checkpoint": "trainer.fit(..., ckpt_path=...)",
}
TRAINERS = {"pytorch_lightning", "lightning", "transformers", "trl"}
OF_TORCH = {"use_orig_params", "device_id", "sync_module_states"}  # which older versions do not have
PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](\w+)")


REFUSED = r"TypeError: (?P<callee>[\w.]{1,100}?)(?:\.__init__)?\(\) got an unexpected keyword argument '(?P<name>\w+)'"


@log_pattern(REFUSED)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell whose class refuses, and who calls it; a slip of the user's own is another matter."""
    callee, name = match["callee"].rpartition(".")[2], match["name"]
    frames = [found[1] if (found := PACKAGE.search(frame.file)) else "" for frame in record.frames]
    innermost = frames[-1] if frames else ""
    owner = PACKAGES.get(callee, "")
    if callee == "Trainer" and innermost in TRAINERS:
        owner = innermost
    if not owner or (owner == "torch" and name not in OF_TORCH):
        return
    caller = innermost if innermost != owner else ""
    now = NOW.get(name) if not caller else None
    yield Finding(
        f"the installed {owner} has no argument {name} of {callee}, which {caller or 'the script'} gives it",
        (record.proof(match, f"an argument that {callee} takes"),),
        Fix(
            "write it as the installed version has it",
            diff=f"-{callee}(..., {name}=...)\n+{callee}(..., {now})" if now and "fit(" not in now else "",
            command=f"python -c 'import {owner}; print({owner}.__version__)'",
        )
        if now
        else Fix(
            f"bring {caller} and {owner} to versions that fit each other"
            if caller
            else f"use the argument that the installed {owner} has, or install the version that the script is for",
            command=f"pip install --upgrade {' '.join(filter(None, (caller, owner)))}"
            if caller
            else f"python -c 'import {owner}; print({owner}.__version__)'",
        ),
        record.place,
    )


@log_pattern(REFUSED, plain=True)
def by_a_package(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell of a call that a package makes: of another package, or of what the script gave it."""
    called, name = match["callee"], match["name"]
    short = called.rpartition(".")[2]
    found = PACKAGE.search(record.frames[-1].file) if record.frames else None
    if found is None or found[1] == "torch" or short in {"forward", "__call__"}:
        return
    caller = found[1]
    yield Finding(
        f"{caller} calls {called} with {name}, which {called} does not take here",
        (record.proof(match, f"a {short} that takes {name}"),),
        Fix(
            f"bring {caller} and the package of {short} to versions that fit each other; where {short} is the script's "
            "own, let it take what it is given now",
            command=f"pip show {caller} | head -2; grep -rn 'def {short}' --include=*.py .",
            diff=f"-def {short}(self, model, inputs):\n+def {short}(self, model, inputs, **kwargs):"
            if "." in called
            else "",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                f"{short} is of another package, of a version that {caller} was not written for",
                f"{short} is the script's own, and this version of {caller} gives it more than an earlier one",
            ),
            f"grep -rn 'def {short}' --include=*.py .",
        ),
    )
