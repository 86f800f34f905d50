"""FullyShardedDataParallel is stepped with gradients that no_sync has left whole.

## What happens

Within `model.no_sync()` FullyShardedDataParallel keeps the gradients of a backward whole, on each rank its own; the
next backward outside reduces them to shards. An `optimizer.step()` before that meets a shard of the parameter and a
whole gradient: "The size of tensor a (1298) must match the size of tensor b (2596)", in torch's own optimizer. Where
only some ranks are within no_sync, these fail so, and the others wait for them.

## How to be sure

The traceback ends in torch/optim, at the addition of a gradient, the size of the gradient is about the number of
ranks times that of the parameter, and the log names FullyShardedDataParallel, or the script has no_sync.

## How to mend it

Leave no_sync for the last micro-batch before each step, on all ranks alike:

    last = (index + 1) % accumulate == 0
    with contextlib.nullcontext() if last else model.no_sync():
        loss_of(model(inputs)).backward()
    if last:
        optimizer.step()

## Versions and sources

Measured with torch 2.13, gloo, two ranks. Source: PyTorch documentation, FullyShardedDataParallel.no_sync. Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern, tree_of

AILMENT = Ailment("DDP581", Severity.ERROR)
OPTIMIZER = re.compile(r"[/\\]torch[/\\]optim[/\\]\w+\.py")

FSDP = r"FullyShardedDataParallel|[/\\\\]distributed[/\\\\]fsdp[/\\\\]|\bno_sync\b"


@log_pattern(
    r"The size of tensor a \((?P<shard>\d+)\) must match the size of tensor b \((?P<whole>\d+)\)",
    context=(FSDP,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Only in an optimizer, and where FSDP or no_sync is spoken of: other sizes differ for other reasons.

    A shard is a whole number of times in the gradient, but for what fills up the last one.
    """
    shard, whole = int(match["shard"]), int(match["whole"])
    ranks = -(-whole // max(1, shard))
    if not shard < whole or ranks * shard - whole >= ranks or not OPTIMIZER.search(record.text):
        return
    if log.first(FSDP) is not None or _leaves_gradients_whole(record):
        yield Finding(
            f"the optimizer is given a gradient of {whole} elements for a shard of {shard}: the last backward was "
            "within no_sync",
            (record.proof(match, "a gradient that FullyShardedDataParallel has reduced to this rank's shard"),),
            Fix(
                "leave no_sync for the last micro-batch before each step, on all ranks",
                diff="+    with contextlib.nullcontext() if last else model.no_sync():\n"
                "         loss_of(model(inputs)).backward()\n     if last:\n         optimizer.step()",
            ),
            record.place,
        )


def _leaves_gradients_whole(record: Record) -> bool:
    """Whether the user's file that stepped has no_sync in it."""
    nodes = tree_of(record.place.file or "").of(ast.Attribute)
    return any(node.attr == "no_sync" for node in nodes)
