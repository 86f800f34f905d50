"""Lightning's training_step returned None to skip a batch, which a distributed training cannot do.

## What happens

With one process, Lightning skips a batch for which `training_step` returns None. With several, the rank that skips
makes no backward, and the others wait for its gradients; newer versions refuse: "Skipping the `training_step` by
returning None in distributed training is not supported". A batch of NaNs, or without a target, is the usual reason, and
a `return` that was forgotten in one branch.

## How to be sure

The message says it; the rank that prints it has the batch.

## How to mend it

Return a loss that changes nothing, of all parameters, so that all ranks make the same backward:

    if not torch.isfinite(loss):
        loss = sum(p.sum() for p in self.parameters()) * 0.0

Or leave such samples out in the data set. `loss * 0` does not do: NaN times 0 is NaN, on all ranks after the average.

## Versions and sources

Said by Lightning 2.6; 2.2 does not say it, and its ranks wait for each other. Holds for torch 2.2 to 2.13. Source:
lightning/pytorch/loops/optimization/automatic.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Record, Severity, log_pattern, tree_of

from ..._scripts.own_files import own_files

AILMENT = Ailment("DDP1585", Severity.ERROR)


@log_pattern(r"Skipping the `training_step` by returning None in distributed training is not supported")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the loss that changes nothing, and the line that returns None where there is one alone."""
    found = _returns(record)
    where = (Evidence("return None in training_step", "", f"{found[0]}:{found[1]}"),) if found else ()
    yield Finding(
        "training_step returned None, by which this rank would skip a backward that the others make",
        (record.proof(match, "a loss, on all ranks and for every batch"), *where),
        Fix(
            "return a loss that changes nothing",
            diff="-    return None\n+    return sum(p.sum() for p in self.parameters()) * 0.0",
        ),
        Place(file=found[0], line=found[1], rank=record.rank, host=record.node) if found else record.place,
    )


def _returns(record: Record) -> tuple[str, int] | None:
    """Return the one line of the user's files where a training_step returns None; None where there are several."""
    files = dict.fromkeys(file for each in record.frames if each.is_users for file in own_files(each.file))
    lines = {
        (file, node.lineno)
        for file in files
        for step in tree_of(file).of(ast.FunctionDef)
        if step.name == "training_step"
        for node in ast.walk(step)
        if isinstance(node, ast.Return)
        and tree_of(file).function(node) is step
        and (node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None))
    }
    return lines.pop() if len(lines) == 1 else None
