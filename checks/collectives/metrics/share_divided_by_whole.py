"""What a rank has summed over its share is divided by the size of the whole data set.

## What happens

With a DistributedSampler each rank goes through a part of the data set, and sums its losses or hits over that part.
Divided by `len(dataset)`, which is the length of the whole, each rank's average is too small by the number of ranks:
four ranks tell a quarter of the loss, and an accuracy of 25 % where it is 100 %. The training itself is not changed;
runs on different numbers of GPUs cannot be compared.

## How to be sure

Run on one GPU: the number is larger by the number of ranks. Reported where the loop that sums learns, and nothing adds
up the sums of the ranks: a sum that is all-reduced before is right. An evaluation is metric-of-one-rank.

## How to mend it

Count the samples in the loop and divide by that count, or add up both over the ranks first:

    totals = torch.tensor([running_loss, count], device=device)
    dist.all_reduce(totals)
    average = (totals[0] / totals[1]).item()

## Versions and sources

Holds for torch 2.2 and later. Source: PyTorch documentation, torch.utils.data.distributed.DistributedSampler.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, given, lint

from ..._scripts.source import SAMPLER, is_own
from .source._reducing import REDUCED
from .source._reductions import can_be_reduced, is_of_known_code

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP766", Severity.ERROR)
MEND = (
    "+totals = torch.tensor([running, count], dtype=torch.float64, device=device)\n"
    "+torch.distributed.all_reduce(totals)\n+average = (totals[0] / totals[1]).item()"
)
SCALED = re.compile(r"world|replicas|gpus|ranks|procs", re.IGNORECASE)
"""What says that a quotient is multiplied by the number of ranks."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a division of such a sum by the length of the sampler's data set, below the loop."""
    if not is_own(script):
        return
    somewhere = project.does(REDUCED)
    for path, tree in ((script.path, script.tree), *project.trees("DistributedSampler")):
        for call in tree.of(ast.Call):
            if script.names_in(tree, call.func) != SAMPLER:
                continue
            data = given(call, 0, "dataset") if tree is script.tree else None
            for there, loop in script.passes(tree, call):
                if there is not script.tree or not script.learns(loop) or (somewhere and can_be_reduced(script, loop)):
                    continue
                if not is_of_known_code(script, project, loop):
                    continue
                sampler = Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}")
                for division, held in _divisions(script, loop, data):
                    yield Finding(
                        f"{held} is summed over the share of one rank, and divided by the size of the whole data set",
                        (script.seen(division, "the number of samples that this rank has seen"), sampler),
                        Fix("divide by what was counted, or add up both over the ranks", diff=MEND),
                        script.place(division),
                    )


def _divisions(script: Script, loop: ast.For, data: ast.expr | None) -> Iterator[tuple[ast.BinOp, str]]:
    """Yield the divisions below a loop of what it sums by the length of its data set."""
    sums = {
        node.target.id
        for node in script.inside(*loop.body)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name)
    }
    for node in script.nodes(ast.BinOp):
        if not isinstance(node.op, ast.Div) or script.function(node) is not script.function(loop):
            continue
        read = {each.id for each in ast.walk(node.left) if isinstance(each, ast.Name)}
        is_below = node.lineno > (loop.end_lineno or 0) and not SCALED.search(
            script.code(script.tree.statement(node) or node)
        )
        if is_below and read & sums and _is_whole(script, node.right, loop, data):
            yield node, min(read & sums)


def _is_whole(script: Script, node: ast.expr, loop: ast.For, data: ast.expr | None) -> bool:
    """Whether an expression is the length of the data set that a loop goes through a share of."""
    match script.value(node):
        case ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=loader, attr="dataset")]):
            return script.code(loader) in {script.code(each) for each in _parts(loop.iter)}
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name() | ast.Attribute() as counted]):
            return data is not None and script.code(counted) == script.code(data) and _is_one(script, counted, data)
    return False


def _is_one(script: Script, one: ast.expr, other: ast.expr) -> bool:
    """Whether two names of the same letters hold one thing: in one function, or of the module."""
    if not isinstance(one, ast.Name) or not isinstance(other, ast.Name):
        return script.function(one) is script.function(other)
    return script.tree.lookup(one.id, one) == script.tree.lookup(other.id, other)


def _parts(iterated: ast.expr) -> Iterator[ast.expr]:
    yield iterated
    for each in iterated.args if isinstance(iterated, ast.Call) else ():
        yield from _parts(each)
