"""A metric is computed from one rank's share of the evaluation, and told as that of all.

## What happens

A DistributedSampler gives each rank its share of the samples, in an evaluation as well. What a rank counts and sums
there is about its share alone: with eight ranks, the accuracy that rank 0 prints is that of an eighth of the data,
and the best model is chosen by it. The ranks come to different results.

## How to be sure

Print the metric on every rank: the numbers differ. Reported where a loop without gradients goes through a loader with
a DistributedSampler, sums are kept over the loop and printed or returned after it, and neither the file nor one in
its reach reduces or gathers anything.

## How to mend it

Add up counts and sums over the ranks, then divide.

    totals = torch.tensor([loss_sum, correct, count], device=device)
    dist.all_reduce(totals)
    loss, accuracy = totals[0] / totals[2], totals[1] / totals[2]

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: PyTorch documentation, DistributedSampler;
torch.distributed.all_reduce.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

from .._source import evaluations, prepared_loaders, sharded_loaders

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP754", Severity.WARNING)


REDUCED = r"reduce|gather|torchmetrics|synchronize|Metric|Evaluator|broadcast|hvd\.|xm\.|MeanAverage|\bdist_utils"
"""What says that somebody puts the ranks' parts together."""
WITH_RANK = re.compile(r"rank", re.IGNORECASE)
TOLD_WITH_RANK = r"(?:print|info|log|debug)\([^\n]*\brank\b[^\n]*(?:loss|acc|metric)"
"""What says that a metric is told as that of its rank."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for sums over an evaluation that is shared out, in a project that reduces nothing."""
    known = {"accelerate"} if script.frameworks == {"accelerate"} else set()
    if script.frameworks - known:
        return
    loaders = [*sharded_loaders(script), *(prepared_loaders(script) if known else ())]
    if not loaders or project.says(REDUCED) or project.unknown() - known:
        return
    for name, sampler in loaders:
        for loop, held in evaluations(script, name):
            use = _told(script, loop, held)
            if use is not None:
                yield Finding(
                    f"what is summed over {name} is of one rank's share, and is told as that of all",
                    (
                        script.seen(loop, "dist.all_reduce of the sums after the loop"),
                        script.seen(sampler),
                        script.seen(use),
                    ),
                    Fix("add up the sums and counts of all ranks, then divide", diff=ADDED),
                    script.place(loop),
                )
                break


ADDED = (
    "+totals = torch.tensor([correct, count], dtype=torch.float64, device=device)\n"
    "+torch.distributed.all_reduce(totals)\n+accuracy = (totals[0] / totals[1]).item()"
)
TELLS = {"print", "info", "log", "write", "append", "add_scalar", "debug"}


def _told(script: Script, loop: ast.For, held: str) -> ast.AST | None:
    """Return where, after a loop, a sum that it keeps is printed, logged or returned."""
    around = script.function(loop) or script.module
    names = {held}
    for node in script.inside(around):
        if getattr(node, "lineno", 0) <= (loop.end_lineno or 0):
            continue
        read = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if isinstance(node, (ast.Assign, ast.AugAssign)) and names & read:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for each in targets if isinstance(each, ast.Name)}
        if isinstance(node, ast.Return) and names & read:
            return None if re.search(TOLD_WITH_RANK, script.text, re.IGNORECASE) else node
        if isinstance(node, ast.Call) and names & read and ast.unparse(node.func).rpartition(".")[2] in TELLS:
            return None if WITH_RANK.search(script.code(node)) else node
    return None
