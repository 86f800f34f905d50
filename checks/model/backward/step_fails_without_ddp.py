"""The model takes no training step with the example batch, DDP or not.

## What happens

The bare model was called with the example batch in a single process (on each rank), a loss was made of its
outputs, and forward or backward raised. Under DDP the same happens, often with one rank's message lost among
those of the others. What checks of their own explain (SyncBatchNorm on CPU, batch normalisation of one value)
is reported there.

## How to be sure

Call `model(*batch)` in a Python prompt.

## How to mend it

The traceback's last line of your own code is given. If the batch is not what forward takes,
let the function that `--batch` names return it as people pass it: a tensor, a tuple of the positional
arguments, or a dict of keyword arguments; of `(input, target)` only the first is passed where forward takes
one argument.

## Versions and sources

Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    TOO_SLOW,
    Ailment,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP522", Severity.ERROR)
EXPLAINED = ("SyncBatchNorm", "Expected more than 1 value per channel when training")


@probe
def in_a_step(model: ModelExam) -> Iterator[Finding]:
    """Yield what the bare model raised, on the first rank where it did."""
    for rank, step in enumerate(model.steps.plain):
        if step.trouble is not None and step.trouble.kind == TOO_SLOW:
            raise NotRun(step.trouble.message)
        if step.trouble is None or any(words in step.trouble.message for words in EXPLAINED):
            continue
        no_loss = step.trouble.kind == "NoLossError"
        if no_loss and not model.ranks[rank].trainable:
            continue
        frames = step.trouble.frames
        yield Finding(
            f"no output of {model.model.kind} has a gradient: backward has nowhere to start"
            if no_loss
            else f"without DDP, {model.model.kind} fails on the example batch: {step.trouble.kind}",
            (Evidence(str(step.trouble), "forward and backward go through", f"rank {rank}, one process"),),
            Fix(
                "repeat it in one process",
                command=f"python -c 'from ddpdoctor.examine.target import build, parse; "
                f'model = build(parse("{model.target}"), 0, 1); batch = build(parse("{model.batch}"), 0, 1); '
                "print(model(*batch) if isinstance(batch, (tuple, list)) else model(batch))'",
            ),
            place=Place(file=frames[0].file, line=frames[0].line, rank=rank) if frames else Place(rank=rank),
            severity=Severity.WARNING if no_loss else Severity.ERROR,
        )
        return


SHARDED = (
    r"(?i:deepspeed|fsdp|fully_shard|tensor_parallel|dtensor|pipeline_parallel|sequence_parallel|context_parallel)"
)

OPTIMIZER = r"torch[/\\]optim[/\\]\w+\.py|\bexp_avg\w*\."


@log_pattern(
    r"mat1 and mat2 shapes cannot be multiplied \((?P<one>\d+x\d+) and (?P<two>\d+x\d+)\)"
    r"|The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The shapes of the model or of its input are wrong, and that has nothing to do with the number of ranks."""
    if re.search(SHARDED, record.text) or re.search(OPTIMIZER, record.text) or "0" in {match["a"], match["b"]}:
        return  # a parameter, or its gradient, that another rank holds has no size here
    one, two = (match["one"], match["two"]) if match["one"] else (match["a"], match["b"])
    yield Finding(
        f"the model's own step fails, with or without DDP: {one} does not fit {two}",
        (record.proof(match, "shapes that fit"),),
        Fix("make the shapes fit at the line of your own code; one process shows it", command="python train.py"),
        record.place,
    )
