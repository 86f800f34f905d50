"""Ray Train runs the function on several workers, and nothing makes their models one.

## What happens

Ray Train starts the workers, joins them into a process group, and leaves the model to the function: only
`ray.train.torch.prepare_model`, which wraps it in DistributedDataParallel, makes the workers exchange gradients.
Without it each trains a model of its own. Nothing fails, each reports a loss of its own, and the checkpoint that is
kept is one worker's: N workers do the work of one.

## How to be sure

The losses that the workers print differ more and more. In a source (`ddpdoctor lint`): a TorchTrainer is given a
function of the file and a ScalingConfig of several workers; the function trains a model, and no file in reach says
prepare_model, DDP, FSDP, or names another library that would exchange gradients.

## How to mend it

    model = ray.train.torch.prepare_model(model)      # before the optimizer is built

## Versions and sources

Seen with Ray 2.60 and torch 2.13 CPU, where the summary of `ddpdoctor run` said "gradients different, weights
different". Source: Ray documentation, "Get Started with Distributed Training using PyTorch".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, dotted, lint

from ..._ray import training_functions

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP537", Severity.ERROR)
EXCHANGES = (
    r"prepare_model|DistributedDataParallel|\bDDP\b|[Ff]ully_?[Ss]hard|\bFSDP\b|deepspeed|[Aa]ccelerat|lightning"
    r"|transformers|horovod|all_reduce|reduce_scatter|\bignite\b|parallelize_module|prepare_trainer|torchtitan|megatron"
)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the step of a training that nothing wraps."""
    for function in training_functions(script):
        calls = [node for node in script.inside(*function.body) if isinstance(node, ast.Call)]
        named = {node.func.attr for node in calls if isinstance(node.func, ast.Attribute)}
        built = next((each for each in calls if (script.resolve(each.func) or "").startswith("torch.optim.")), None)
        if not {"backward", "step"} <= named or built is None or project.does(EXCHANGES):
            continue
        model = _model(built)
        right = f"{model} = ray.train.torch.prepare_model({model})"
        yield Finding(
            f"nothing makes {model} one model of all workers: each trains its own",
            (script.seen(built, f"{right}, before it"), script.seen(function)),
            Fix("let Ray Train wrap the model, before its optimizer is built", diff=f"+{right}\n {script.code(built)}"),
            script.place(built),
        )


def _model(optimizer: ast.Call) -> str:
    """Return the name whose parameters an optimizer is given."""
    match optimizer.args:
        case [ast.Call(func=ast.Attribute(value=owner, attr="parameters")), *_]:
            return dotted(owner) or "model"
    return "model"
