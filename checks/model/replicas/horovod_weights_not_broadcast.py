"""Horovod averages gradients, and nothing gives its ranks the same weights to begin with.

## What happens

`hvd.DistributedOptimizer` averages gradients, and leaves the weights as each rank has made them: with random numbers of
its own. Equal changes to different weights leave them different for ever. Each rank evaluates and saves another model,
and the average of gradients that belong to different weights trains none of them well.

## How to be sure

Print `sum(p.sum() for p in model.parameters())` on each rank before the first step. In a source (`ddpdoctor lint`): the
file makes a DistributedOptimizer and steps it, and no file in reach broadcasts parameters, loads weights, seeds the
random numbers alike, or keeps its state in `hvd.elastic`. In a running training the watch compares the weights
themselves (replicas-begin-apart).

## How to mend it

    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

## Versions and sources

Seen with Horovod 0.28.1. Source: Horovod documentation, "Horovod with PyTorch", step 5.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, dotted, given, keyword, lint

from ..._frameworks.horovod import OPTIMIZER, steps_of

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Edit, Script

AILMENT = Ailment("DDP538", Severity.ERROR)
EQUAL = (
    r"broadcast(?!_optimizer_state)|elastic|State\b|load_state_dict|pretrained|torch\.load|constant_|zeros_"
    r"|lightning|weights *=|(?<!Generator\(\)\.manual_)seed(?!\((?:[^(),#\n]|\(\))*rank)"
)
"""What makes the weights equal, or can: seeds, but those of a data set's own generator, or another one on each rank."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a DistributedOptimizer that trains what nothing has made equal."""
    for call in script.calls(OPTIMIZER):
        if not steps_of(script, call) or project.does(EQUAL) or project.unknown() - {"horovod.torch", "horovod"}:
            continue
        model = _model(call)
        lines = (
            f"hvd.broadcast_parameters({model}.state_dict(), root_rank=0)",
            "hvd.broadcast_optimizer_state(optimizer, root_rank=0)",
        )
        yield Finding(
            "the ranks begin with different weights: Horovod averages gradients, and nothing broadcasts the weights",
            (script.seen(call, lines[0]),),
            Fix(
                "broadcast weights and optimizer from rank 0 before the first step",
                diff="+" + "\n+".join(lines),
                edits=_edits(script, call),
            ),
            script.place(call),
        )


def _edits(script: Script, call: ast.Call) -> tuple[Edit, ...]:
    """Return the lines before the optimizer is wrapped, where the model and the optimizer are variables there."""
    named = keyword(call, "named_parameters")
    statement = script.tree.statement(call)
    match call.func, given(call, 0, "optimizer"), named, statement:
        case (
            ast.Attribute(value=home),
            ast.Name(id=optimizer),
            ast.Call(func=ast.Attribute(value=ast.Name(id=model))),
            ast.Assign(),
        ):
            first = script.code(home)
            indent = " " * statement.col_offset
            weights = f"{first}.broadcast_parameters({model}.state_dict(), root_rank=0)"
            state = f"{first}.broadcast_optimizer_state({optimizer}, root_rank=0)"
            return (script.line_before(statement, f"{weights}\n{indent}{state}"),)
    return ()


def _model(call: ast.Call) -> str:
    named = keyword(call, "named_parameters")
    text = (dotted(named.func) or "") if named is not None and hasattr(named, "func") else ""
    return text.removesuffix(".named_parameters") if text.endswith(".named_parameters") else "model"
