"""A function is asked for its answer without being called.

## What happens

`if dist.is_initialized:` is always true, and `dist.get_rank == 0` never: the name of a function without parentheses
is the function itself. The branch for rank 0 is taken by no rank, or by all.

## How to be sure

`print(dist.get_rank == 0)`. Reported only for functions of torch that are compared, negated or tested by themselves.

## How to mend it

Add the parentheses: `dist.get_rank() == 0`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: Python's truth value testing; the functions of
torch/distributed/distributed_c10d.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP461", Severity.ERROR)


FUNCTIONS = {
    *(
        f"torch.distributed.{name}"
        for name in "get_rank get_world_size is_initialized is_available is_nccl_available".split()
    ),
    *(f"torch.cuda.{name}" for name in "is_available device_count current_device".split()),
    "torch.distributed.is_torchelastic_launched",
}


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for such a function where its answer is meant: in a test, a comparison, a calculation."""
    for node in script.tree.nodes:
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        if script.resolve(node) in FUNCTIONS and _is_asked(script, node):
            right = f"{script.code(node)}()"
            yield Finding(
                f"{script.code(node)} is a function, and is not called here",
                (script.seen(node, right),),
                Fix("call it", edits=(script.replaced(node, right),)),
                script.place(node),
            )


def _is_asked(script: Script, node: ast.expr) -> bool:
    match script.tree.parents.get(node):
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            return test is node
        case ast.UnaryOp(op=ast.Not()) | ast.BinOp() | ast.FormattedValue():
            return True
        case ast.BoolOp(values=values):
            return node in values
        case ast.Compare(ops=operators, comparators=others):
            is_identity = any(isinstance(each, (ast.Is, ast.IsNot)) for each in operators)
            return not is_identity and not any(
                isinstance(each, (ast.Name, ast.Attribute)) for each in others if each is not node
            )
    return False
