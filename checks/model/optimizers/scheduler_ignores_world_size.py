"""The schedule of the learning rate counts steps of one process, and there are several.

## What happens

`len(dataset) // batch_size` is how many steps an epoch has in one process. With a DistributedSampler each rank goes
through its share, so an epoch has that number divided by the number of ranks. A schedule that is laid out for the
greater number (`OneCycleLR(steps_per_epoch=...)`, `CosineAnnealingLR(T_max=...)`, `num_training_steps`) is
only begun when the training ends: with 8 ranks the learning rate has gone an eighth of its way.

## How to be sure

Print `len(loader)` beside the number that the schedule is given. In a source (`ddpdoctor lint`): the number is the
length of a data set divided by a batch size, the data set's loader has a DistributedSampler, and nothing in the
expression says how many ranks there are.

## How to mend it

Take the length of the loader: `steps_per_epoch=len(loader)`.

## Versions and sources

Holds for every version of torch. Source: PyTorch documentation, torch.optim.lr_scheduler.OneCycleLR, and
torch/utils/data/distributed.py, `num_samples`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, given, keyword, lint

from ..._scripts.source import LOADER, SAMPLER

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1576", Severity.NOTE)
COUNTS = re.compile(r"^(?:steps_per_epoch|total_steps|T_max|num_training_steps|t_total|total_iters)$")
SEVERAL = re.compile(r"world|gpu|rank|replica|process|device|node|total_|global_|effective|shard|loader", re.IGNORECASE)
"""Words of a number that takes the ranks into account, or can."""
DIVIDED = re.compile(r"batch_?size\w*\s*(?://|/)?=(?!=)[^\n]*/")
"""What makes of the batch size of all ranks that of one."""


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a schedule whose steps are a data set's length divided by a batch size."""
    if not script.joins or script.frameworks or not script.calls(SAMPLER) or DIVIDED.search(script.text):
        return
    for call in script.nodes(ast.Call):
        if not re.search(r"LR$|schedule", ast.unparse(call.func)):
            continue
        for word in call.keywords:
            if word.arg is not None and COUNTS.match(word.arg):
                whole = _whole(script, word.value)
                data, batch = _length(whole)
                if data and _is_of_ranks(script, data, batch) and not SEVERAL.search(ast.unparse(whole)):
                    yield Finding(
                        f"{word.arg} counts the steps of one process, with all of {data}: each rank has fewer",
                        (script.seen(word.value, f"{word.arg}=len(loader)"),),
                        Fix("take the length of the loader, which is that of a rank's share"),
                        script.place(word.value),
                    )


def _is_of_ranks(script: Script, data: str, batch: str) -> bool:
    """Whether the loaders that share out a data set all take batches of this size: it is that of one rank."""
    loaders = [each for each in script.calls(LOADER) if each.args and keyword(each, "sampler")]
    sizes = [given(each, 1, "batch_size") for each in loaders if ast.unparse(each.args[0]) == data]
    return bool(sizes) and all(size is not None and ast.unparse(_whole(script, size)) == batch for size in sizes)


def _whole(script: Script, node: ast.expr, depth: int = 4) -> ast.expr:
    """Return an expression with what its names were given in their place."""
    if isinstance(node, (ast.Name, ast.Attribute)) and depth:
        held = script.value(node)
        return node if held is node or not isinstance(held, (ast.BinOp, ast.Call)) else _whole(script, held, depth - 1)
    if isinstance(node, ast.BinOp):
        return ast.BinOp(_whole(script, node.left, depth - 1), node.op, _whole(script, node.right, depth - 1))
    return node


def _length(node: ast.expr) -> tuple[str, str]:
    """Return the data and the size of ``len(data) // batch_size``, alone or times the epochs; empty of others."""
    match node:
        case ast.BinOp(
            left=ast.Call(func=ast.Name(id="len"), args=[data]), op=ast.FloorDiv() | ast.Div(), right=by
        ) if "batch" in ast.unparse(by).lower():
            return ast.unparse(data), ast.unparse(by)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            found = _length(left)
            return found if found[0] else _length(right)
        case ast.Call(func=function, args=[inner]) if ast.unparse(function) in {"int", "math.ceil", "math.floor"}:
            return _length(inner)
    return "", ""
