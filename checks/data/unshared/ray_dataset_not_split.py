"""Each worker of Ray Train goes through the whole of a Ray Data set.

## What happens

Ray Train splits the data sets that `TorchTrainer(datasets=...)` is given, and `ray.train.get_dataset_shard` returns a
worker's part. A data set that the training function makes itself, or has from outside, is iterated as a whole by each
worker: all compute the same batches, and an epoch takes as long as with one worker. Nothing is said.

## How to be sure

In a source (`ddpdoctor lint`): the function that several workers run iterates what a function of `ray.data` returned,
and nothing in reach asks for a worker's part.

## How to mend it

    trainer = TorchTrainer(train_func, datasets={"train": dataset}, ...)
    shard = ray.train.get_dataset_shard("train")      # in train_func

## Versions and sources

Source: Ray documentation, "Data Loading and Preprocessing"; seen in Ray 2.60.
Holds for Ray 2.7 and later, with any torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, dotted, lint

from ..._frameworks.ray import training_functions
from ..._scripts.source import target

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP653", Severity.ERROR)
ITERATES = frozenset("iter_torch_batches iter_batches iter_rows iterator to_torch".split())
SPLITS = (
    r"get_dataset_shard|streaming_split|split_at_indices|\.split\(|world_rank|world_size|\.shard\(|split_proportion"
)
"""What occurs where a worker takes its part by itself."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loop over a whole data set in the function that the workers run."""
    for function in () if project.does(SPLITS) else training_functions(script):
        made = [call for path, calls in script.all_calls().items() if path.startswith("ray.data.") for call in calls]
        sets = {name: call for call in made if (name := target(script, call))}
        for node in script.inside(*function.body):
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in ITERATES:
                    call = sets.get(dotted(owner) or "")
                    if call is not None and script.function(call) in {None, function}:
                        yield _finding(script, node, call, function)


def _finding(script: Script, loop: ast.Call, made: ast.Call, function: ast.FunctionDef) -> Finding:
    name = target(script, made) or "dataset"
    return Finding(
        f"each worker goes through all of {name}: Ray Train splits only what TorchTrainer(datasets=...) is given",
        (script.seen(loop, 'ray.train.get_dataset_shard("train")'), script.seen(made), script.seen(function)),
        Fix(
            "hand the data set to the trainer, and ask for the worker's part",
            diff=f'+trainer = TorchTrainer(train_func, datasets={{"train": {name}}}, ...)\n'
            f'+{name} = ray.train.get_dataset_shard("train")   # in the function of the training',
        ),
        script.place(loop),
    )
