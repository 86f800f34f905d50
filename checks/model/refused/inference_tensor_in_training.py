"""A tensor that was made in torch.inference_mode() is used in training.

## What happens

Tensors made within `torch.inference_mode()` stay inference tensors, for as long as they live: autograd keeps no version
of them. Outside of it they cannot be changed in place ("Inplace update to inference tensor outside InferenceMode is not
allowed"), saved for backward ("Inference tensors cannot be saved for backward"), or asked for gradients ("Setting
requires_grad=True on inference tensor outside InferenceMode is not allowed"). In a training they come from where an
evaluation, or a generation between two steps, made what lives on: weights that ZeRO 3 or FSDP gathered there, buffers
and caches (rotary embeddings, masks) that a module makes at its first forward, samples that a model generated.

## How to be sure

`print(name, tensor.is_inference())` over `model.named_parameters()` and `named_buffers()`, right after the evaluation.

## How to mend it

`torch.no_grad()` in the place of `torch.inference_mode()`; in Lightning `Trainer(inference_mode=False)`. What was
generated and is to be learned from: `.clone()` outside of inference mode.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch/csrc/autograd, c10/core/InferenceMode.h; StarsfieldAI/R1-V#164.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1530", Severity.ERROR)
GATHERS = re.compile(r"deepspeed[/\\]runtime[/\\]zero[/\\]|torch[/\\]distributed[/\\]fsdp[/\\]")
LIGHTNING = re.compile(r"(?:pytorch_lightning|lightning[/\\]pytorch)[/\\]")


@log_pattern(
    r"RuntimeError: (?:(?P<changed>Inplace update to inference tensor outside InferenceMode is not allowed)"
    r"|(?P<saved>Inference tensors cannot be saved for backward)"
    r"|Setting requires_grad=True on inference tensor outside InferenceMode is not allowed)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say what was asked of the tensor, and where it comes from as far as the frames tell."""
    what = "changed in place" if match["changed"] else "saved for backward" if match["saved"] else "to get gradients"
    whose = "a weight that was gathered" if GATHERS.search(record.text) else "a tensor that was made"
    trainer = LIGHTNING.search(record.text) is not None
    yield Finding(
        f"{whose} within torch.inference_mode() is {what} outside of it",
        (record.proof(match, "evaluation and generation under torch.no_grad()"),),
        Fix(
            "leave inference mode out of evaluation and generation; clone what is to be learned from",
            diff="-Trainer(...)\n+Trainer(..., inference_mode=False)"
            if trainer
            else "-with torch.inference_mode():\n+with torch.no_grad():",
            command="grep -rn 'inference_mode' --include='*.py' .",
        ),
        record.place,
    )
