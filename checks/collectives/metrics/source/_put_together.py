"""How the parts of a metric that the ranks have are put together, in the words of the script."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Fix

from ._sums import is_list

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def named(iterated: ast.expr) -> str:
    while isinstance(iterated, ast.Call) and iterated.args:
        iterated = iterated.args[0]
    return ast.unparse(iterated)


def fix(script: Script, loop: ast.For, held: str, sampler: Evidence) -> Fix:
    """Return how to put the parts together: sums are added up, and lists are gathered before anything is computed."""
    if ".prepare(" in sampler.seen:
        return Fix("gather what each process has computed of its batch, and count that", diff=GATHERED)
    if is_list(script, loop, held) and script.frameworks != {"horovod"}:
        return Fix(f"gather {held} of all ranks, then compute", diff=EXTENDED.replace("held", held))
    by_horovod = script.frameworks == {"horovod"}
    return Fix("add up the sums and counts of all ranks, then divide", diff=BY_HOROVOD if by_horovod else ADDED)


GATHERED = "+outputs, targets = accelerator.gather_for_metrics((outputs, targets))   # in the loop, on all processes"
EXTENDED = (
    "+parts = [None] * torch.distributed.get_world_size()\n+torch.distributed.all_gather_object(parts, held)\n"
    "+held = [each for part in parts for each in part]"
)
ADDED = (
    "+totals = torch.tensor([correct, count], dtype=torch.float64, device=device)\n"
    "+torch.distributed.all_reduce(totals)\n+accuracy = (totals[0] / totals[1]).item()"
)


BY_HOROVOD = (
    "+totals = hvd.allreduce(torch.tensor([correct, count], dtype=torch.float64), op=hvd.Sum)\n"
    "+accuracy = (totals[0] / totals[1]).item()"
)
BY_FABRIC = '+loss = fabric.all_reduce(loss, reduce_op="mean")   # on all processes, and keep what it returns'
WHOLE = (
    "-val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False))\n"
    "+val_loader = DataLoader(val_set)   # on the rank that evaluates"
)
