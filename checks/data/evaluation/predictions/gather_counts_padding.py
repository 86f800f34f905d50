"""An evaluation with Accelerate counts the samples that fill up its last batch.

## What happens

`accelerator.prepare(loader)` gives each rank batches of one size: where the data set does not divide evenly, the last
batch of some ranks is filled up with samples from the beginning. `accelerator.gather` returns those as well, so the
metric is of more samples than the data set has, and the first ones count twice. With a small evaluation set and many
ranks that moves the metric by points; the number also changes with the number of GPUs.

## How to be sure

Count the rows: `sum(len(accelerator.gather(y)) for _, y in loader)` is more than `len(dataset)`. In a running training
(`ddpdoctor run`) ddpdoctor compares the rows that come of a last batch with those that Accelerate knows to be new. It
says nothing where the file cuts what was gathered to a length by itself (`predictions[:len(dataset)]`).

In a source (`ddpdoctor lint --confidence likely`): a loop without a backward over a loader that was prepared gathers
targets or predictions; whether the data set divides evenly is not seen there.

## How to mend it

    predictions, targets = accelerator.gather_for_metrics((predictions, targets))

It does what gather does, and drops of the last batch what was there to fill it up.

## Versions and sources

Source: Accelerate documentation, "gather_for_metrics"; accelerate/data_loader.py, `BatchSamplerShard` (even_batches).
Seen with accelerate 1.15 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    PaddingGathered,
    Severity,
    is_cut_to_length,
    lint,
    place,
    watch,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP670", Severity.WARNING)


@watch(PaddingGathered)
def while_training(event: PaddingGathered) -> Iterator[Finding]:
    """Report it once for the training, by rank 0."""
    if event.rank != 0 or event.site is None or is_cut_to_length(event.site.file):
        return
    twice = event.rows - event.kept
    yield Finding(
        f"the evaluation counts {twice} of {event.samples} samples twice: gather keeps what fills up the last batch",
        (
            Evidence(
                f"{event.rows} rows of the last batch, {event.kept} of them new",
                f"{event.kept} rows",
                "all ranks",
            ),
        ),
        Fix(
            "have Accelerate drop what it has filled up",
            diff="-predictions, targets = accelerator.gather((predictions, targets))\n"
            "+predictions, targets = accelerator.gather_for_metrics((predictions, targets))",
        ),
        place(event.site),
    )


OF_SAMPLES = re.compile(r"pred|label|target|logits|referenc|answer|score", re.IGNORECASE)
"""Names of what has a row for each sample; a loss is a mean, of which nothing can be dropped."""
BY_HAND = re.compile(r"drop_last=True|even_batches|\bremainder\b|samples_seen|end_of_dataloader|join_uneven_inputs")
"""What says that nothing is filled up, or that the script drops it itself."""
UNSEEN = Ambiguity(
    (
        "the data set does not divide by the batch size times the processes: samples count twice",
        "it does divide: no harm, until one of the three is changed",
    ),
    "ddpdoctor run -- accelerate launch train.py   # compares the rows of the last batch",
)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for an evaluation that gathers with what keeps the samples that fill up its last batch."""
    if "accelerate" not in script.imported or BY_HAND.search(script.text) or _is_cut(script):
        return
    prepared = _prepared(script)
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=owner, attr="gather"), args=[given]) if OF_SAMPLES.search(
                script.code(given)
            ) and script.made_by(owner, ACCELERATOR):
                loop = _evaluation(script, call, prepared)
                if loop is not None:
                    right = f"{script.code(owner)}.gather_for_metrics"
                    yield Finding(
                        "gather keeps the samples that fill up the last batch: the evaluation counts them twice",
                        (script.seen(call, f"{right}({script.code(given)})"), script.seen(loop.iter)),
                        Fix("let Accelerate drop them", edits=(script.replaced(call.func, right),)),
                        script.place(call),
                        ambiguity=UNSEEN,
                    )


def _is_cut(script: Script) -> bool:
    return any(
        each.lower is None and each.upper is not None and not isinstance(each.upper, ast.Constant)
        for each in script.nodes(ast.Slice)
    )


def _prepared(script: Script) -> set[str]:
    """Return the names that hold what an Accelerator has prepared."""
    names = set()
    for node in script.nodes(ast.Assign):
        match node.value:
            case ast.Call(func=ast.Attribute(attr="prepare" | "prepare_data_loader")):
                names |= {script.code(each) for target in node.targets for each in ast.walk(target) if _is_name(each)}
    return names


def _evaluation(script: Script, call: ast.Call, prepared: set[str]) -> ast.For | None:
    """Return the loop over a prepared loader that a call stands in, if nothing goes backward in it."""
    for loop in script.tree.above(call):
        if isinstance(loop, ast.For) and prepared & {
            script.code(each) for each in ast.walk(loop.iter) if _is_name(each)
        }:
            return None if "backward" in script.code(loop) else loop
    return None


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))
