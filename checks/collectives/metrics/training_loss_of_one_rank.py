"""Rank 0 tells the loss of its own batches as that of the training.

## What happens

With a DistributedSampler each rank learns from a share of the samples, and its loss is of that share. Where rank 0
alone prints or logs it, the curve is that of one rank: with eight ranks it is of an eighth of the samples, and noisier
than the training is. What the model learns is right. A rank whose loss is NaN, or whose data are bad, is not seen.

## How to be sure

Print the loss on every rank: the numbers differ. In a source (`ddpdoctor lint`): a loop that learns goes through a
loader with a DistributedSampler, what `backward` was called on, or a sum of it, is told under a test that lets one rank
through, and nothing in the file or in its reach reduces or gathers anything.

## How to mend it

Reduce a copy on all ranks, where it is to be told; every step would cost time.

    shown = loss.detach().clone()
    dist.all_reduce(shown)  # on all ranks
    if rank == 0:
        print(shown.item() / dist.get_world_size())

## Versions and sources

Holds for every version of torch. Source: PyTorch documentation, DistributedSampler; torch.distributed.all_reduce.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, last_name, lint

from ..._scripts.source import SAMPLER, is_own
from .source._reducing import REDUCED
from .source._reductions import can_be_reduced, is_of_known_code
from .source._told_sums import TELLS, WITH_RANK

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP759", Severity.NOTE)
TOLD = TELLS - {"append", "write"} | {"set_postfix", "set_description", "add_scalars", "warning"}
KEPT = {"append", "update", "add"}
"""Methods of what keeps values: a list, a meter."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loss of training that one rank tells, in a project that reduces nothing."""
    if not script.runs_in_ranks or not is_own(script):
        return
    somewhere = project.does(REDUCED)
    told = set()
    for sampler in script.calls(SAMPLER):
        for there, loop in script.passes(script.tree, sampler):
            if there is not script.tree or loop in told:
                continue
            told.add(loop)
            if not is_of_known_code(script, project, loop) or (somewhere and can_be_reduced(script, loop)):
                continue
            for loss, since in _losses(script, loop):
                if (use := _told(script, loss, since)) is not None:
                    yield Finding(
                        f"what one rank tells as the training's {loss} is of its own batches, and no other rank's",
                        (script.seen(use, f"{loss} reduced over the ranks"), script.seen(sampler)),
                        Fix(
                            "reduce a copy on all ranks before, and tell its mean",
                            diff=f"+shown = {loss}.detach().clone()\n+torch.distributed.all_reduce(shown)\n"
                            "+shown /= torch.distributed.get_world_size()",
                        ),
                        script.place(loop),
                    )
                    break


def _losses(script: Script, loop: ast.For) -> Iterator[tuple[str, int]]:
    """Yield the losses of a loop, with the line from which they hold that: of ``loss.backward()``, or an engine's."""
    given = [each for each in script.inside(*loop.body) if isinstance(each, ast.Assign)]
    assigned = {name for each in given for name in map(ast.unparse, each.targets)}
    for node in script.inside(*loop.body):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="backward"), args=handed):
                of_engine = [each.id for each in handed if isinstance(each, ast.Name) and owner not in assigned]
                name = of_engine[0] if of_engine else owner
                made = [each.lineno for each in given if name in map(ast.unparse, each.targets)]
                yield name, max((each for each in made if each < node.lineno), default=node.lineno)


def _told(script: Script, loss: str, since: int) -> ast.Call | None:
    """Return where one rank tells what a name holds from a line on, or what is made of it."""
    function = next(
        (each for each in script.nodes(ast.FunctionDef) if each.lineno <= since <= (each.end_lineno or 0)), None
    )
    return _in_order(script, script.module if function is None else function, {loss}, since)


def _in_order(script: Script, around: ast.AST, names: set[str], since: int) -> ast.Call | None:
    nodes = [each for each in script.inside(around) if getattr(each, "lineno", 0) > since]
    for node in sorted(nodes, key=lambda each: (each.lineno, each.col_offset)):  # type: ignore[attr-defined]
        read = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        match node:
            case ast.Assign(targets=targets, value=value):
                made = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
                given = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
                names = names | made if names & given else names - made
            case ast.AugAssign(target=ast.Name(id=made)) if names & read:
                names = names | {made}
            case ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr=method)) if method in KEPT:
                if names & read:
                    names = names | {held}
            case ast.Call() if names & read and last_name(node.func) in TOLD:
                if script.one_rank_guard(node) is not None and not WITH_RANK.search(script.code(node)):
                    return node
    return None
