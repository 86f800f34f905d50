"""The loss is divided by the number of ranks, and DDP divides the gradients by it once more.

## What happens

DistributedDataParallel gives all ranks the mean of their gradients. A loss that was divided by the number of ranks
before makes the mean N times as small: the training goes on as with an N-th of the learning rate (less with SGD and
momentum, nearly nothing with Adam, but for clipping by norm, weight decay and epsilon), and what is logged as the loss
is an N-th too.

## How to be sure

The graph of the loss ends with a division by the number of ranks in two sampled steps after one another, a line of the
script that stands on such a number says so, and each step is made after one backward: it is no accumulation.

A note: whoever has tuned the learning rate with it has compensated. Silent where the script multiplies a learning rate
by the number of ranks, sums its loss over samples, or gathers within the forward.

## How to mend it

    loss = criterion(model(inputs), targets)
    loss.backward()

and, for the log, `dist.all_reduce(loss.detach())` with a division afterwards.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel":
gradients are averaged across processes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    tree_of,
    watch,
)

from ..._ledgers.ledger import data_parallel_sheets
from ..._ledgers.sheets import NEVER, Sheet

AILMENT = Ailment("DDP1503", Severity.NOTE)
SURE = 2
SIZE = re.compile(r"world|get_world_size|n_?gpus?\b|num_?gpus?\b|n_?ranks\b|num_?ranks\b|n_?procs?\b|num_replicas")
LOSS = re.compile(r"loss|cross_entropy|mse|criterion|nll|objective|cost", re.IGNORECASE)
COMPENSATED = re.compile(
    r"(lr|learning_?rate)\w*[\"'\])]* *(=|\*=)[^\n]*\*[^\n]*(world|gpus?|ranks|procs?)"
    r"|(world|gpus?|ranks|procs?)\w*(\(\))? *\* *[\w.]*(lr|learning_?rate)|(lr|learning_?rate)\w* *\*[^\n]*(world|gpus)"
    r"|scale_?lr|lr_?scale|linear.{0,10}scal",
    re.IGNORECASE,
)
SUMMED = re.compile(r"""reduction *= *["'](sum|none)|(loss|nll|mse|entropy)\w*(\([^\n]*\))?\.sum\(""")
GATHERS = {"all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"}


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at the end of the loss's graph, and at the line that wrote it."""
    if event.number < SURE or float(training.world_size) not in event.divisors:
        return
    steps = data_parallel_sheets(event, training, SURE)
    if not steps or not all(_divides(each) for each in steps[-SURE:]) or _is_told(steps):
        return
    line = _written(steps[-1])
    if line is None:
        return
    ranks = len(steps[-1].ranks)
    yield Finding(
        f"the loss is divided by {ranks}, the number of ranks, and DDP divides its gradients by {ranks} once more",
        (
            Evidence(
                f"the loss of step {event.number} is divided by {ranks} before backward",
                "the mean of the rank's own samples",
                str(line),
            ),
            Evidence(
                "the step is given the mean of the ranks' gradients, after one backward",
                "",
                f"rank 0 to {ranks - 1}, step {event.number}",
            ),
        ),
        Fix(
            "leave the loss as it is, and divide only what is logged",
            diff="-loss = criterion(model(inputs), targets) / world_size\n+loss = criterion(model(inputs), targets)",
        ),
        line,
    )


def _divides(step: Sheet) -> bool:
    ranks = float(len(step.ranks))
    telling = step.lines_that_tell
    averaged = telling and all(line.managed != NEVER and line.added == 1 and line.shared for line in telling)
    return bool(averaged) and all(
        ranks in each.divisors and not GATHERS & {name for name, *_ in each.sent} for each in step.ranks.values()
    )


def _is_told(steps: list[Sheet]) -> bool:
    return len(steps) > SURE and all(map(_divides, steps[-SURE - 1 : -1]))


def _written(step: Sheet) -> Place | None:
    """Return the one line that divides a loss by the number of ranks; None where something compensates for it."""
    files = {each.site.file for each in (step.held, *step.ranks.values()) if each.site is not None}
    try:
        texts = [Path(file).read_text(encoding="utf-8") for file in files]
    except (OSError, ValueError):
        return None
    if any(COMPENSATED.search(text) or SUMMED.search(text) for text in texts):
        return None
    found = [Place(file=file, line=line) for file in sorted(files) for line in _divisions(file)]
    return found[0] if found else None


def _divisions(file: str) -> Iterator[int]:
    """Yield the lines of a file that divide a loss by a number of ranks."""
    for node in tree_of(file).nodes:
        match node:
            case (
                ast.BinOp(op=ast.Div(), left=left, right=right) | ast.AugAssign(op=ast.Div(), target=left, value=right)
            ):
                if LOSS.search(ast.unparse(left)) and SIZE.search(ast.unparse(right)) and _is_plain(right):
                    yield node.lineno


def _is_plain(number: ast.expr) -> bool:
    return isinstance(number, (ast.Name, ast.Attribute)) or (isinstance(number, ast.Call) and not number.args)
