"""The ranks share out the data, and nothing averages the gradients of their models.

## What happens

`init_process_group` and a DistributedSampler divide the samples among the ranks, but the model is in no
DistributedDataParallel, and the gradients are reduced by nothing else. Each rank trains a model of its own on its
share; the losses look right, and what rank 0 saves has seen one share of the data.

## How to be sure

Compare a weight of the ranks after a few steps: `torch.distributed.all_gather` of `next(model.parameters()).sum()`
gives another number for each rank. Reported in a source where the file makes the group, or calls the helper of the
project that does, has the sampler, the optimizer and the steps, and nothing in its reach wraps a model or reduces
gradients.

## How to mend it

Wrap the model before the training: `model = DistributedDataParallel(model, device_ids=[local_rank])`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch's documentation of `DistributedDataParallel`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import INIT, Ailment, Evidence, Finding, Fix, Severity, dotted, lint

from ..._scripts.source import SAMPLER

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP541", Severity.ERROR)
EXCHANGES = (
    r"DistributedDataParallel|\bDDP\(|as DDP\b|FSDP|fully_shard|FullyShard|DistributedData|reduce|gather|broadcast|hook"
    r"|rpc|isend|irecv|\bsend\(|\brecv\(|averag(?:ing|e_(?:grad|param|model|weight))|parallelize_module|device_mesh|Pipeline|\bJoin\b|prepare\(|apex"
    r"|all_to_all|\bhvd\b|xm\.|replicate\(|Engine|DTensor|Strategy"
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
