"""The model, or a part of it, is wrapped already.

## What happens

A `DataParallel` inside a model that DDP wraps is an error on GPUs: every rank's inner wrapper scatters over
all GPUs of the node, and every rank but the first stops with "module must have its parameters and buffers on
device cuda:0 (device_ids[0])". Without GPUs the inner wrapper does nothing but put `module.` into the keys of
the state dict; DDP inside of DeepSpeed's engine, or given to `accelerator.prepare`, `fabric.setup`, Ray Train's
`prepare_model` or Ignite's `auto_model`, averages all gradients twice. A factory that wraps the whole model is no
fault: ddpdoctor then examines what is inside, and says so.

## How to be sure

`[name for name, part in model.named_modules() if isinstance(part, nn.DataParallel)]`.

In a source (`ddpdoctor lint`): the argument is a wrapper itself, on every way to this line.

## How to mend it

Remove the inner wrapper; wrap the whole model once, in the training script.

## Versions and sources

Holds for torch 2.2 and later. Source: the check in torch.nn.parallel.data_parallel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DATA_PARALLEL,
    DDP,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Record,
    Severity,
    given,
    keyword,
    lint,
    log_pattern,
    probe,
)

from ..._scripts.source import prepared
from .._logs import NOT_ON_FIRST, WRAPPED_TWICE
from .._words import listed

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam, Script

AILMENT = Ailment("DDP510", Severity.WARNING)


@probe
def as_built(model: ModelExam) -> Iterator[Finding]:
    """Look for wrappers around the model and inside it."""
    built = model.model
    inner = [layer for layer in built.inner if layer.kind == "DataParallel"]
    if inner:
        yield Finding(
            f"a part of {built.kind} is wrapped in DataParallel: {listed(inner)}",
            (Evidence(listed(inner), "the bare module", str(model.target)),),
            Fix(
                "remove the inner wrapper", diff="-self.backbone = nn.DataParallel(backbone)\n+self.backbone = backbone"
            ),
        )
    if built.wrappers:
        yield Finding(
            f"{model.target} gives the model wrapped in {' in '.join(built.wrappers[::-1])}; "
            "examined was what is inside",
            (Evidence(" around ".join((*built.wrappers, built.kind)), built.kind, str(model.target)),),
            Fix("wrap in the training script, so that the bare model can be built for evaluation too"),
            severity=Severity.NOTE,
        )


@log_pattern(NOT_ON_FIRST)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise the inner DataParallel by its frame below that of DDP."""
    if inner := re.search(WRAPPED_TWICE, record.text):
        yield Finding(
            "a DataParallel inside of DDP: it scatters over all GPUs of the node, and this rank's part is on another",
            (
                record.proof(match, f"a model on {match[1]}, or no DataParallel"),
                Evidence(" ".join(inner[0].splitlines()[-1].split()), "no frame of data_parallel.py below DDP's"),
            ),
            Fix(
                "remove the inner wrapper", diff="-self.backbone = nn.DataParallel(backbone)\n+self.backbone = backbone"
            ),
            record.place,
            severity=Severity.ERROR,
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a wrapper around what is a wrapper at this line, on every way; DeepSpeed's engine is one."""
    for call in script.calls(DDP, DATA_PARALLEL):
        if model := given(call, 0, "module"):
            inner = ast.get_source_segment(script.text, model) or ast.unparse(model)
            yield from _again(
                script, call, model, "", Fix("wrap the model once", edits=(script.replaced(call, inner),))
            )
    for call in prepared(script, "prepare", "prepare_model"):
        for model in call.args:
            right = Fix("give Accelerate the bare model: prepare wraps it", diff=f"-{BY_HAND}\n {PREPARED}")
            yield from _again(script, call, model, " by Accelerate", right)
    for call in script.calls("deepspeed.initialize"):
        if model := keyword(call, "model"):
            once = Fix("give DeepSpeed the bare model: its engine averages the gradients", diff=f"-{ENGINE}\n+{BARE}")
            yield from _again(script, call, model, " by DeepSpeed", once)


@lint
def by_frameworks(script: Script) -> Iterator[Finding]:
    """Look for a wrapper that a framework is given, whose function wraps as well."""
    for call in script.calls(*BARE_FOR):
        by, named = BARE_FOR[script.resolve(call.func) or ""]
        if (model := given(call, 0, "model")) and keyword(call, "parallel_strategy") is None:
            yield from _again(script, call, model, f" by {by}", _bare(by, named))
    for call in script.nodes(ast.Call) if script.calls(*FABRICS) else ():
        match call:
            case ast.Call(func=ast.Attribute(attr="setup" | "setup_module", value=owner), args=[model, *_]) if (
                script.is_a(owner, *FABRICS)
            ):
                yield from _again(script, call, model, " by Fabric", _bare("Fabric", "fabric.setup"))


BY_HAND = "model = DDP(model, device_ids=[accelerator.local_process_index])"
PREPARED = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
ENGINE = "engine, *_ = deepspeed.initialize(model=DDP(model), ...)"
BARE = "engine, *_ = deepspeed.initialize(model=model, ...)"
FABRICS = ("lightning.fabric.Fabric", "lightning.Fabric", "lightning_fabric.Fabric")
RAY, IGNITE = ("Ray Train", "ray.train.torch.prepare_model"), ("Ignite", "idist.auto_model")
BARE_FOR = {
    "ray.train.torch.prepare_model": RAY,
    "ignite.distributed.auto_model": IGNITE,
    "ignite.distributed.auto.auto_model": IGNITE,
}
"""Functions of frameworks that wrap the model they are given, with the framework and how it writes them."""


def _bare(by: str, named: str) -> Fix:
    return Fix(
        f"give {by} the bare model, which it wraps", diff=f"-model = {named}(DDP(model))\n+model = {named}(model)"
    )


def _again(script: Script, call: ast.Call, model: ast.expr, by: str, fix: Fix) -> Iterator[Finding]:
    wrap = script.wrap(model)
    if wrap is not None and wrap.sure:
        yield Finding(
            f"{script.code(model)} is a {wrap.kind} already, and is wrapped once more{by}",
            (script.seen(call, "the bare model"), script.seen(wrap.call)),
            fix,
            script.place(call),
        )
