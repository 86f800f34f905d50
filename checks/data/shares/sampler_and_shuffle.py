"""A DataLoader is given a sampler and shuffle=True.

## What happens

The sampler decides the order, and `shuffle=True` asks the loader to make a sampler of its own. torch refuses both
together with "ValueError: sampler option is mutually exclusive with shuffle", and the training ends before its first
step. It is the usual mistake when a DistributedSampler is put into a script that worked on one GPU; also in the
inverted form `shuffle=(sampler is not None)`.

## How to be sure

The last line of the traceback is this ValueError. ddpdoctor calls the factory of the loader and gives the line.

## How to mend it

Let the sampler shuffle, `shuffle=(sampler is None)`, and call `sampler.set_epoch(epoch)` at the start of each epoch.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.utils.data.DataLoader".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Record,
    Severity,
    keyword,
    lint,
    log_pattern,
    own_frames,
    probe,
)

from ..._scripts.source import LOADER

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam, Script

AILMENT = Ailment("DDP602", Severity.ERROR)


@probe
def by_building_it(loader: LoaderExam) -> Iterator[Finding]:
    """Report what torch raised when the factory built the loader."""
    refusal = loader.refusal
    if refusal is None:
        return
    frames = own_frames(refusal.frames)
    place = Place(file=frames[-1].file, line=frames[-1].line) if frames else Place(file=loader.file or None)
    yield Finding(
        "torch refuses to build the loader: it got sampler= and shuffle=True",
        (
            Evidence(
                f"{refusal.kind}: {' '.join(refusal.message.split())}",
                "a DataLoader",
                f"rank {refusal.rank}, {loader.target}",
            ),
        ),
        Fix(
            "let the sampler shuffle",
            diff="-DataLoader(dataset, sampler=sampler, shuffle=True, ...)\n"
            "+DataLoader(dataset, sampler=sampler, shuffle=(sampler is None), ...)",
        ),
        place,
    )


@log_pattern(r"\bsampler (?:option )?is mutually exclusive with shuffle")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise what the DataLoader raises."""
    yield Finding(
        "a DataLoader got both a sampler and shuffle=True",
        (record.proof(match, "a sampler, or shuffle=True"),),
        Fix(
            "let the DistributedSampler shuffle, and tell it the epoch",
            diff="-DataLoader(dataset, sampler=sampler, shuffle=True, ...)\n"
            "+DataLoader(dataset, sampler=sampler, shuffle=(sampler is None), ...)\n"
            " for epoch in range(epochs):\n+    sampler.set_epoch(epoch)",
        ),
        record.place,
    )


@log_pattern(r"batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
def beside_a_batch_sampler(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A batch sampler makes whole batches: whatever else chooses them contradicts it."""
    yield Finding(
        "a DataLoader got a batch_sampler and another option that chooses batches",
        (record.proof(match, "a batch_sampler alone"),),
        Fix(
            "give the options to the batch sampler",
            diff="-DataLoader(dataset, batch_sampler=batches, batch_size=32, shuffle=True)\n"
            "+DataLoader(dataset, batch_sampler=BatchSampler(DistributedSampler(dataset), 32, drop_last=True))",
        ),
        record.place,
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for both in one call: a sampler that is certainly none of None, and a literal True, or the inverted test."""
    for call in script.calls(LOADER):
        sampler, shuffle = keyword(call, "sampler"), keyword(call, "shuffle")
        if sampler is None or shuffle is None:
            continue
        if _is_inverted(script, sampler, shuffle) or (
            _is_true(shuffle) and isinstance(script.value(sampler), ast.Call)
        ):
            right = f"({script.code(sampler)} is None)"
            yield Finding(
                "the DataLoader is given a sampler and is to shuffle, which torch refuses",
                (script.seen(shuffle, f"shuffle={right}"),),
                Fix("let the sampler shuffle", edits=(script.replaced(shuffle, right[1:-1]),)),
                script.place(call),
            )


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_inverted(script: Script, sampler: ast.expr, shuffle: ast.expr) -> bool:
    match shuffle:
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return script.code(left) == script.code(sampler)
    return False
