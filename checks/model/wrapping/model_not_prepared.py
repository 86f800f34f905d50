"""Ray Train runs the function on several workers, and nothing makes their models one.

## What happens

Ray Train starts the workers, joins them into a process group, and leaves the model to the function: only
`ray.train.torch.prepare_model`, which wraps it in DistributedDataParallel, makes the workers exchange gradients.
Without it each trains a model of its own. Nothing fails, each reports a loss of its own, and the checkpoint that is
kept is one worker's: N workers do the work of one.

## How to be sure

The losses that the workers print differ more and more. In a source (`ddpdoctor lint`): a TorchTrainer is given a
function of the file and a ScalingConfig of several workers; the function, or what it calls, trains a model, and no file
in reach says prepare_model, DDP, FSDP, or names another library that would exchange gradients.

## How to mend it

    model = ray.train.torch.prepare_model(model)      # before the optimizer is built

## Versions and sources

Seen with Ray 2.60 and torch 2.13 CPU, where the summary of `ddpdoctor run` said "gradients different, weights
different". Source: Ray documentation, "Get Started with Distributed Training using PyTorch".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Ailment, Finding, Fix, Severity, dotted, lint

from ..._frameworks.ray import training_functions

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

AILMENT = Ailment("DDP537", Severity.ERROR)
EXCHANGES = (
    r"prepare_model|DistributedDataParallel|\b(?:DDP|FSDP)\(|[Ff]ully_?[Ss]hard|deepspeed|[Aa]ccelerat|lightning"
    r"|transformers|horovod|all_reduce|reduce_scatter|\bignite\b|parallelize_module|prepare_trainer|torchtitan|megatron"
)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the step of a training that nothing wraps, in the function or in what it calls."""
    for function in training_functions(script):
        parts = [*_parts(script, function)]
        calls = [(each, call) for each in parts for call in ast.walk(each.function) if isinstance(call, ast.Call)]
        named = {call.func.attr for _, call in calls if isinstance(call.func, ast.Attribute)}
        optimizers = (
            each for each in calls if (script.names_in(each[0].tree, each[1].func) or "").startswith("torch.optim.")
        )
        part, built = next(optimizers, (None, None))
        if not {"backward", "step"} <= named or part is None or built is None or project.uses(EXCHANGES):
            continue
        model = _model(built)
        right = f"{model} = ray.train.torch.prepare_model({model})"
        at = built if part.tree is script.tree or part.call is None else part.call
        yield Finding(
            f"nothing makes {model} one model of all workers: each trains its own",
            (script.seen(at, f"{right}, before {'it' if at is built else 'its optimizer'}"), script.seen(function)),
            Fix(
                "let Ray Train wrap the model, before its optimizer is built",
                diff=f"+{right}\n {' '.join(ast.unparse(built).split())}",
            ),
            script.place(at),
        )


class _Part(NamedTuple):
    """A function that a worker runs, its file, and the call in the function of the training that leads to it."""

    tree: Tree
    function: ast.FunctionDef
    call: ast.Call | None


DEPTH = 3


def _parts(script: Script, function: ast.FunctionDef) -> Iterator[_Part]:
    """Yield the function of a training, and those of the project that it calls, through a few of them."""
    waiting, seen = [(_Part(script.tree, function, None), DEPTH)], {function}
    while waiting:
        part, depth = waiting.pop(0)
        yield part
        for call in ast.walk(part.function) if depth else ():
            found = script.defined_in(part.tree, call.func) if isinstance(call, ast.Call) else None
            if found is None or not isinstance(found[1], ast.FunctionDef) or found[1] in seen:
                continue
            seen.add(found[1])
            led = call if part.call is None and isinstance(call, ast.Call) else part.call
            waiting.append((_Part(found[0], found[1], led), depth - 1))


def _model(optimizer: ast.Call) -> str:
    """Return the name whose parameters an optimizer is given."""
    match optimizer.args:
        case [ast.Call(func=ast.Attribute(value=owner, attr="parameters")), *_]:
            return dotted(owner) or "model"
    return "model"
