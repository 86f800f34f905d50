"""The ranks share out the data, and nothing averages the gradients of their models.

## What happens

`init_process_group` and a DistributedSampler divide the samples among the ranks, but the model is in no
DistributedDataParallel, and the gradients are reduced by nothing else. Each rank trains a model of its own on its
share; the losses look right, and what rank 0 saves has seen one share of the data.

## How to be sure

Compare a weight of the ranks after a few steps: `torch.distributed.all_gather` of `next(model.parameters()).sum()`
gives another number for each rank. Reported in a source where the file makes the group, or calls the helper of the
project that does, has the sampler, the optimizer and the steps, and nothing in its reach wraps a model or reduces
gradients; or where nothing keeps what `DistributedDataParallel(model)` returns, and the model itself is trained.

## How to mend it

Wrap the model before the training: `model = DistributedDataParallel(model, device_ids=[local_rank])`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch's documentation of `DistributedDataParallel`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, INIT, Ailment, Evidence, Finding, Fix, Severity, dotted, given, lint

from ..._scripts.source import SAMPLER
from ..gradients.bypassed._thrown_away import OF_GRADIENTS
from ..gradients.bypassed._to_backward import backward_of, is_call_of

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP541", Severity.ERROR)
EXCHANGES = (
    r"DistributedDataParallel|\bDDP\(|as DDP\b|FSDP|fully_shard|FullyShard|DistributedData|reduce(?!=)|share_memory"
    r"|gather|broadcast|hook|rpc|isend|irecv|\bsend\(|\brecv\(|averag(?:ing|e_(?:grad|param|model|weight))"
    r"|parallelize_module|device_mesh|Pipeline|\bJoin\b|prepare\(|apex|all_to_all|\bhvd\b"
    r"|xm\.|replicate\(|Engine|DTensor|Strategy"
)
"""What says that somebody wraps the model, or brings the ranks together."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a training with shared data and an optimizer, in a project that exchanges nothing."""
    if script.frameworks or project.does(EXCHANGES) or project.unknown():
        return
    samplers = [script.seen(each) for each in script.calls(SAMPLER)] or [*_samplers_of_others(script, project)]
    if not samplers:
        return
    called = {each.func.attr for each in script.nodes(ast.Call) if isinstance(each.func, ast.Attribute)}
    built = [each for path, calls in script.all_calls().items() if path.startswith(OPTIMIZERS) for each in calls]
    if len({_model(each) for each in built}) != 1 or not {"backward", "step"} <= called:
        return
    first = min(built, key=lambda each: each.lineno)
    if script.calls(INIT) or script.joins_elsewhere(first):
        model = _model(first)
        yield Finding(
            f"nothing averages the gradients of {model}: each rank trains a model of its own",
            (
                script.seen(first, f"{model} = DistributedDataParallel({model}, ...), before the training"),
                samplers[0],
                *(script.seen(each) for each in script.calls(INIT)[:1]),
            ),
            Fix(
                "wrap the model before the training",
                diff=f"+{model} = torch.nn.parallel.DistributedDataParallel({model}, device_ids=[local_rank])",
            ),
            script.place(first),
        )


@lint
def nobody_keeps_it(script: Script, project: Around) -> Iterator[Finding]:
    """Look for ``DistributedDataParallel(model)`` as a whole line, above a training of the model itself."""
    lines = [each.value for each in script.nodes(ast.Expr)]
    for wrap in script.calls(DDP):
        model = given(wrap, 0, "module")
        if wrap not in lines or model is None or project.does(OF_GRADIENTS):
            continue
        around = script.function(wrap) or script.module
        name = script.code(model)
        calls = [each for each in ast.walk(around) if isinstance(each, ast.Call) and is_call_of(each, name)]
        trained = ((each, backward_of(script, each, script.function(each) or around)) for each in calls)
        call, backward = next((pair for pair in trained if pair[1] is not None), (None, None))
        if call is not None and backward is not None and call.lineno > wrap.lineno:
            kept = f"{name} = {script.code(wrap)}"
            yield Finding(
                f"nothing keeps the wrapper: {name} itself is trained, and its gradients are not averaged",
                (script.seen(wrap, kept), script.seen(call), script.seen(backward)),
                Fix("keep what it returns", edits=(script.replaced(wrap, kept),)),
                script.place(wrap),
            )


def _samplers_of_others(script: Script, project: Around) -> Iterator[Evidence]:
    """Yield the samplers of other files whose loaders a loop of this one goes through."""
    for path, tree in project.trees("DistributedSampler"):
        for call in tree.of(ast.Call):
            if script.names_in(tree, call.func) == SAMPLER and any(
                there is script.tree for there, _ in script.passes(tree, call)
            ):
                yield Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}")


OPTIMIZERS = (
    "torch.optim.SGD",
    "torch.optim.Adam",
    "torch.optim.AdamW",
    "torch.optim.RMSprop",
    "torch.optim.Adagrad",
    "torch.optim.Adadelta",
    "torch.optim.NAdam",
    "torch.optim.RAdam",
    "transformers.AdamW",
    "transformers.Adafactor",
    "transformers.optimization.AdamW",
)


def _model(optimizer: ast.Call) -> str:
    """Return the name whose parameters an optimizer is given."""
    match optimizer.args:
        case [ast.Call(func=ast.Attribute(value=owner, attr="parameters")), *_]:
            return dotted(owner) or "the model"
    return "the model"
