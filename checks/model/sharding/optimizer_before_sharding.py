"""The optimizer holds parameters that FSDP has replaced: its step changes nothing.

## What happens

`fully_shard(model)` and `FullyShardedDataParallel(model)` replace the parameters of the model by shards. An optimizer
that was built before holds the old ones, which take no part in the training any more: they never get a gradient, so
that `step()` passes over them. Nothing fails, and what was sharded stays as it was at the start. DDP keeps the
parameters; the same lines are right there.

## How to be sure

ddpdoctor notes which parameters a module has when it is sharded. Here an optimizer has stepped twice with such ones
that the module does not have any more, and that had no gradient in either step. By hand:

    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    print(sum(id(parameter) in held for parameter in model.parameters()))      # 0: the optimizer holds none of them

In a source (`ddpdoctor lint`): the optimizer is built of `model.parameters()` in a line before the one that shards the
model.

## How to mend it

Shard first, then build the optimizer:

    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

FullyShardedDataParallel keeps the parameters with `use_orig_params=True`; there the order does not matter.

## Versions and sources

Measured with torch 2.13, gloo, two ranks: no parameter changes. Source: PyTorch documentation,
torch.distributed.fsdp.fully_shard ("the optimizer must be constructed after"), and FullyShardedDataParallel. Holds for
torch 2.2 and later; fully_shard is seen with torch 2.4 and later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    FULLY_SHARD,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    StaleParametersHeld,
    Training,
    given,
    is_open,
    lint,
    place,
    watch,
)

from .._words import counted, listed
from ._optimizers import is_built_again, is_optimizer_of

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP577", Severity.ERROR)


@watch(StaleParametersHeld)
def while_training(event: StaleParametersHeld, training: Training) -> Iterator[Finding]:
    """Report it once, for the first rank that shows it."""
    if training.of(StaleParametersHeld, optimizer=event.optimizer)[0] is not event:
        return
    count = len(event.names)
    which = "all" if count == event.held else f"{count} of {event.held}"
    yield Finding(
        f"{event.kind} was built before {event.api}, which has replaced {which} of its parameters: they never change",
        (
            Evidence(
                f"{counted(count, 'parameter')} in {event.kind} without a gradient, no longer in the model: "
                f"{listed(event.names, 4)}",
                "the sharded ones",
                f"rank {event.rank}, in the first two steps",
            ),
            Evidence(f"{event.api} was called after {event.kind} was built", "before", str(event.sharded)),
        ),
        _fix(event.api, event.kind),
        place(event.site),
    )


def _fix(api: str, kind: str) -> Fix:
    shard = "fully_shard(model)" if api == "fully_shard" else f"model = {api}(model)"
    return Fix(
        "shard the model, then build the optimizer",
        diff=f"-optimizer = torch.optim.{kind}(model.parameters(), lr=lr)\n {shard}\n"
        f"+optimizer = torch.optim.{kind}(model.parameters(), lr=lr)",
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for an optimizer of all parameters in the block that shards the model as a whole later."""
    for call in script.calls(FULLY_SHARD):
        model, statement = given(call, 0, "module"), script.tree.statement(call)
        if not isinstance(model, ast.Name) or statement is None or is_open(call):
            continue
        block = script.tree.block(statement)
        for before in block[: block.index(statement)] if statement in block else ():
            made = before.value if isinstance(before, ast.Assign) else None
            if not isinstance(made, ast.Call) or not is_optimizer_of(script, made, model.id):
                continue
            if is_built_again(script, before) or _is_bound_between(script, block, before, statement, model.id):
                continue
            yield Finding(
                f"the optimizer holds the parameters of {model.id} from before sharding: its step changes nothing",
                (script.seen(made, "after fully_shard"), script.seen(call)),
                Fix("shard the model, then build the optimizer"),
                script.place(made),
            )


def _is_bound_between(script: Script, block: list[ast.stmt], first: ast.stmt, last: ast.stmt, name: str) -> bool:
    """Whether the name stands for another model in between."""
    between = block[block.index(first) + 1 : block.index(last)]
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in script.inside(*between)
    )
