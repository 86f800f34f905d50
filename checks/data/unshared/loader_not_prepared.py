"""A framework prepared the model and not its loader: each rank trains on the whole data set.

## What happens

`accelerator.prepare`, and `ray.train.torch.prepare_data_loader`, give each rank its part of a loader. One that was not
handed to them goes through the whole data set on every rank: N GPUs do the work of one, and an epoch takes as long as
with one. Nothing raises, since batches can be moved by hand.

## How to be sure

`len(loader)` is the same with one and with several processes. In a source (`ddpdoctor lint`): the file prepares an
optimizer and trains through a DataLoader that is in no `prepare`, has no sampler, and is handed to nobody else; or Ray
Train runs the function on several workers and its model is prepared, and neither prepare_data_loader, a sampler, the
rank nor Ray Data occurs in reach.

## How to mend it

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)      # Accelerate
    loader = ray.train.torch.prepare_data_loader(loader)                          # Ray Train

## Versions and sources

Sources: Accelerate documentation, "Migrating code"; Ray documentation, "Get Started with Distributed Training using
PyTorch". Holds for accelerate 0.20 to 1.15 with torch 2.2 to 2.13; seen with Ray 2.60.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, given, is_open, keyword, lint

from ..._frameworks.accelerate import prepares
from ..._frameworks.ray import training_functions
from ..._scripts.source import LOADER, iterated, target
from .._whole import escapes, is_drawn_by_each, is_sharded, trains

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Edit, Script

AILMENT = Ailment("DDP651", Severity.ERROR)
SPLITS = (
    r"prepare_data_loader|[Ss]ampler|rank\b|get_dataset_shard|iter_torch_batches|random_split|split_dataset|world_size"
)
"""What occurs where the data are split by something else."""


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for the loader of the loop that trains, where model and optimizer are prepared and it is not."""
    if "accelerate" not in script.imported:
        return
    prepared = [
        node
        for node in script.nodes(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr.startswith("prepare")
    ]
    if any(_is_open(each) for each in prepared):
        return
    handed = {each.id for call in prepared for each in ast.walk(call) if isinstance(each, ast.Name)}
    if not any("opt" in name for name in handed):
        return
    for loader in script.calls(LOADER):
        name = target(script, loader)
        if name is None or "." in name or name in handed or is_sharded(loader) or is_drawn_by_each(script, loader):
            continue
        data = given(loader, 0, "dataset")
        if data is not None and script.can_differ(data):
            continue
        loop = iterated(script, name, script.function(loader) or script.module)
        if loop is not None and trains(script, loop) and not escapes(script, name, loader):
            yield Finding(
                f"{name} is in no prepare: each rank goes through the whole data set",
                (script.seen(loader, f"{name} = accelerator.prepare({name})"), script.seen(prepared[0])),
                Fix(
                    "hand it to prepare with the model",
                    diff=f"+{name} = accelerator.prepare({name})",
                    edits=_prepared(script, loader, prepared[0], name),
                ),
                script.place(loader),
            )


@lint
def of_accelerate_elsewhere(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loader that the loop of another file learns from, where Accelerate prepares no loader at all."""
    if ".prepare(" in script.text or not script.calls(LOADER) or not project.others_say(r"\.prepare\("):
        return
    found = [(path, call) for path, tree in project.trees(r"\.prepare\(") for call in prepares(script, tree)]
    handed = [ast.unparse(each) for _, call in found for each in call.args]
    if any(map(_is_open, (call for _, call in found))) or not any("opt" in each for each in handed):
        return
    if any(LOADED.search(each) for each in handed) or project.uses(SPLITS_BY_HAND) or project.does(BY_PROCESS):
        return
    for loader in script.calls(LOADER):
        learned = script.learned(loader) if not is_sharded(loader) and not is_open(loader) else None
        if learned is not None and not learned[1]:
            path, call = found[0]
            yield Finding(
                "the loader is in no prepare: each rank goes through the whole data set",
                (
                    script.seen(loader, "loader = accelerator.prepare(loader)"),
                    Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}"),
                ),
                Fix("hand it to prepare with the model", diff="+loader = accelerator.prepare(loader)"),
                script.place(loader),
            )


LOADED = re.compile(r"load|data|\bdl\b|iter|batch", re.IGNORECASE)
"""Words of a loader among what ``prepare`` is given."""
BY_PROCESS = r"prepare_data_loader|process_index|num_processes|skip_first_batches|[Ss]ampler\b"


@lint
def of_ray_train(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the loader of the loop that trains, where Ray Train prepares the model and not it."""
    functions = [*training_functions(script)]
    if not functions or not project.says("prepare_model") or project.does(SPLITS) or project.unknown() - {"ray"}:
        return
    for loader in script.calls(LOADER):
        name = target(script, loader)
        if name is None or "." in name or is_sharded(loader) or script.function(loader) not in functions:
            continue
        loop = iterated(script, name, script.function(loader) or script.module)
        if loop is not None and trains(script, loop) and not escapes(script, name, loader):
            right = f"{name} = ray.train.torch.prepare_data_loader({name})"
            yield Finding(
                f"{name} is in no prepare_data_loader: each worker goes through the whole data set",
                (script.seen(loader, right),),
                Fix("hand it to Ray Train", diff=f"+{right}"),
                script.place(loader),
            )


@lint
def of_deepspeed(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loader of the loop that trains DeepSpeed's engine, which shares out only what it is given itself."""
    engines = script.calls("deepspeed.initialize")
    if not engines or script.frameworks != {"deepspeed"} or project.uses(SPLITS_BY_HAND):
        return
    elsewhere = project.does(SPLITS_BY_HAND)
    if any((keyword(each, "training_data") and not _is_dropped(script, each)) or is_open(each) for each in engines):
        return
    for loader in script.calls(LOADER):
        learned = script.learned(loader) if not is_sharded(loader) and not is_open(loader) else None
        if learned is None or learned[1] or is_drawn_by_each(script, loader):
            continue
        is_at_hand = learned[0] is not None and script.function(learned[0]) is script.function(loader)
        if is_at_hand or not elsewhere:
            yield Finding(
                f"nothing shares out {script.code(loader.args[0]) if loader.args else 'the data'} among the ranks: "
                "each goes through all of it",
                (
                    script.seen(loader, "DataLoader(..., sampler=DistributedSampler(dataset))"),
                    script.seen(engines[0]),
                ),
                Fix(
                    "give the loader a DistributedSampler, or DeepSpeed the data",
                    diff="+engine, optimizer, loader, _ = deepspeed.initialize(..., training_data=dataset)",
                ),
                script.place(loader),
            )


def _is_dropped(script: Script, engine: ast.Call) -> bool:
    """Whether the loader that DeepSpeed returns, the third of four, is given a name that nothing reads."""
    match script.tree.statement(engine):
        case ast.Assign(targets=[ast.Tuple(elts=[_, _, ast.Name(id=name), _])]):
            return name not in script.tree.read
    return False


SPLITS_BY_HAND = (
    r"[Ss]ampler|deepspeed_io|random_split|split_dataset|\.shard\(|num_replicas|world_size\s*[*)\]:]|IterableDataset"
    r"|StreamingDataset|webdataset|\bwds\."
)
"""What occurs where a script that uses DeepSpeed shares out the data itself."""


def _prepared(script: Script, loader: ast.Call, prepare: ast.Call, name: str) -> tuple[Edit, ...]:
    """Return the line below the later of two statements of a block: the loader's, and that which prepares the model."""
    first, second = script.tree.statement(loader), script.tree.statement(prepare)
    if first is None or second is None or second not in script.tree.block(first):
        return ()
    later = max(first, second, key=lambda each: each.lineno)
    return (script.line_after(later, f"{name} = {script.code(prepare.func)}({name})"),)


def _is_open(call: ast.Call) -> bool:
    return any(isinstance(each, ast.Starred) for each in call.args)
