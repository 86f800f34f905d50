"""An attribute of the model is read from its wrapper.

## What happens

DDP and DataParallel forward calls, not attributes: `model.encode(x)` after `model = DDP(model)` raises
"AttributeError: 'DistributedDataParallel' object has no attribute 'encode'". It often shows only at the first
validation or when the checkpoint is written, hours later.

## How to be sure

ddpdoctor reads the file that the factory stands in: a name is bound to `DDP(...)` or
`DataParallel(...)`, and further down in the same block an attribute is read from it that the user's model has
and the wrapper has not. Attributes that the file sets on the wrapper, and what stands in `try` or under
`hasattr`, are left alone. Other files are not read.

In a source (`ddpdoctor lint`): the variable holds the wrapper on every way, and the model's class stands in the file or
one that it imports and defines the attribute, or a method is called that no wrapper has. With Accelerate the same is
reported of what `prepare` returns, here and in the functions of the file that are handed it; not with DeepSpeed or
FSDP, whose wrappers hand out the model's attributes.

## How to mend it

`model.module.encode(x)`. In training, though, whatever computes the loss belongs in forward:
a call through `.module` averages no gradients where the result reaches backward.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import ast
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
    lint,
    log_pattern,
    probe,
)

from ...._frameworks.accelerate import is_launched_with_several
from ..._logs import APEX, TRAINER, beside, is_private
from ._classes import class_of, class_of_model, is_asked_for, is_method_of_none, own
from ._prepared import read_of_prepared

if TYPE_CHECKING:
    from ddpdoctor.check import Around, ModelExam, Script

AILMENT = Ailment("DDP516", Severity.ERROR)


@probe
def in_the_factorys_file(model: ModelExam) -> Iterator[Finding]:
    """Find the reads that raise."""
    for read in model.source.reads:
        if read.attribute in model.model.attributes:
            yield Finding(
                f"{read.name}.{read.attribute} raises AttributeError: {read.name} is {read.wrapper}(...), "
                "which hides the model's attributes",
                (
                    Evidence(
                        f"{read.name}.{read.attribute}",
                        f"{read.name}.module.{read.attribute}",
                        f"{model.source.file}:{read.line}",
                    ),
                ),
                Fix(
                    "read it from the module inside",
                    diff=f"-{read.name}.{read.attribute}\n+{read.name}.module.{read.attribute}",
                ),
                place=Place(file=model.source.file, line=read.line),
            )


@log_pattern(
    r"'((?:MM)?(?:DataParallel|DistributedDataParallel)|FullyShardedDataParallel)' object has no attribute '(\w+)'",
    context=(TRAINER,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the attribute; what belongs to the wrapper itself, or is hidden by Trainer's own wrapping, is not it."""
    wrapper, name = match[1], match[2]
    if name in APEX or is_private(record, name) or (wrapper == "DataParallel" and beside(record, log, TRAINER)):
        return
    yield Finding(
        f"{name} is read from the wrapper {wrapper}, which hides the attributes of the model",
        (record.proof(match, f"model.module.{name}"),),
        Fix(
            "read it from the module inside: with Accelerate accelerator.unwrap_model(model), else model.module",
            diff=f"-model.{name}\n+model.module.{name}",
        ),
        record.place,
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for an attribute of a class of this file that is read from the wrapper of one of its objects."""
    for node in script.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            continue
        wrap = script.wrap(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else None
        if wrap is None or not wrap.in_ranks or is_asked_for(script, node):
            continue
        found = class_of(script, wrap)
        if found is None and wrap.sure and is_method_of_none(script, node, wrap):
            right = f"{script.code(node.value)}.module.{node.attr}"
            yield Finding(
                f"{script.code(node.value)} is a {wrap.kind}, which has no {node.attr}: an AttributeError",
                (script.seen(node, right), script.seen(wrap.call)),
                Fix("ask what is wrapped", edits=(script.replaced(node, right),)),
                script.place(node),
            )
        if found is not None and node.attr in own(*found) and not script.is_assigned(node):
            owner, name = found[1], script.code(node.value)
            right = f"{name}.module.{node.attr}" if wrap.sure else f'getattr({name}, "module", {name}).{node.attr}'
            where = "" if wrap.sure else " in ranks"
            yield Finding(
                f"{node.attr} is of {owner.name}, and {name} is its {wrap.kind}{where}: an AttributeError",
                (script.seen(node, right), script.seen(wrap.call)),
                Fix("ask what is wrapped", edits=(script.replaced(node, right),)),
                script.place(node),
            )


FORWARDS = r"(?i)deepspeed|fsdp|fully_?sharded|megatron"
"""What hands out the attributes of the model that it has wrapped."""


@lint
def of_prepared_models(script: Script, project: Around) -> Iterator[Finding]:
    """Look for an attribute of a class of the project that is read of what Accelerate has prepared."""
    if (
        "accelerate" not in script.imported
        or project.says(FORWARDS)
        or project.in_launches(r"distributed_type: *(?:DEEP|FSDP)")
    ):
        return
    told = set()
    for read in read_of_prepared(script):
        node, name = read.node, script.code(read.node.value)
        found = class_of_model(script, read.model)
        if found is None or node.attr not in own(*found) or is_asked_for(script, node) or script.is_assigned(node):
            continue
        if node in told:
            continue
        told.add(node)
        right = f'getattr({name}, "module", {name}).{node.attr}'
        yield Finding(
            f"{node.attr} is of {found[1].name}, which Accelerate has wrapped where there are several processes: an "
            "AttributeError there",
            (script.seen(node, right), script.seen(read.call)),
            Fix("ask what is wrapped", edits=(script.replaced(node, right),))
            if not script.learns(script.function(node) or script.module)
            else Fix("compute in forward what the loss is made of, and call the model itself"),
            script.place(node),
            ambiguity=None if is_launched_with_several(script, project) else HOW,
        )


HOW = Ambiguity(
    (
        "several processes run it, each with a DistributedDataParallel: it fails",
        "one process runs it, which Accelerate wraps nothing for, or DeepSpeed or FSDP hands the attributes out",
    ),
    "accelerate env   # num_processes, distributed_type",
)
