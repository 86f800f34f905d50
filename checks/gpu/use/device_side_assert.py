"""An index, or another input, of a GPU kernel is out of range.

## What happens

A kernel checked its input and failed: "Assertion `t >= 0 && t < n_classes` failed", then "CUDA error: device-side
assert triggered" from whatever call comes next, since kernels run asynchronously. From then on every CUDA call of
that process fails, NCCL's among them ("unhandled cuda error"), and the other ranks wait. Usual causes: a label that
is not below the number of classes, a token id that is not below the size of the embedding, a gather with wrong
indices; an input of BCELoss that is not between 0 and 1, or NaN ("Assertion `input_val >= zero && input_val <= one`
failed"); probabilities of multinomial that are NaN.

## How to be sure

The assertion's own line names the condition; CUDA_LAUNCH_BLOCKING=1 lets the traceback stop at the
call.

## How to mend it

Check labels and indices of each batch on the CPU; only some ranks fail, since each has its own data. BCELoss takes what
sigmoid returns; BCEWithLogitsLoss applies it, and is stable in half precision. Where sigmoid is applied and the
assertion fails all the same, NaN has come out of the model: look for the first step in which the loss is not finite.

## Versions and sources

Source: CUDA C++ Programming Guide, "Assertion"; ATen's kernels of nll_loss, Indexing and ScatterGather. Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP215", Severity.ERROR)
ASSERTION = r"block: \[\d+, ?\d+, ?\d+\], thread: \[\d+, ?\d+, ?\d+\] Assertion `([^`\n]+)` failed"
TRIGGERED = r"device-side assert triggered|cudaErrorAssert\b"
MEANINGS = (  # a part of the condition, and what it says of the data
    ("n_classes", "a label is not below the number of classes (or negative, and not ignore_index)"),
    ("srcIndex < srcSelectDimSize", "an index is not below the size of the embedding or of the dimension"),
    ("ind >=0 && ind < ind_dim_size", "an index is not below the size of the embedding or of the dimension"),
    ("index out of bounds", "an index of gather, scatter or indexing is out of range"),
    ("input_val >= zero && input_val <= one", "an input of binary cross entropy is not between 0 and 1 (or NaN)"),
    ("probability", "probabilities hold inf, NaN or a negative number"),
)
IN_RANGE = "indices and labels in range"
STOP = "CUDA_LAUNCH_BLOCKING=1 torchrun --standalone --nproc_per_node=gpu train.py"
RANGES = Fix(
    "check each batch before it goes to the GPU; let the traceback stop at the call that failed",
    command=STOP,
    diff="+assert 0 <= target.min() and target.max() < num_classes, (target.min(), target.max())\n"
    " loss = criterion(output, target)",
)
ROWS = Fix(
    "give the embedding as many rows as there are ids: those of the tokenizer, and positions up to the longest sample",
    command=STOP,
    diff="+assert 0 <= ids.min() and ids.max() < embedding.num_embeddings, (ids.max(), embedding.num_embeddings)\n"
    " hidden = embedding(ids)",
)
OTHERWISE = {
    "srcSelectDimSize": ("ids below the number of rows of the embedding (its vocabulary)", ROWS),
    "ind_dim_size": ("ids below the number of rows of the embedding (its vocabulary)", ROWS),
    "input_val >= zero && input_val <= one": (
        "inputs from 0 to 1, as sigmoid gives them, and no NaN",
        Fix(
            "give the loss what sigmoid returns, or take the one that applies it; where it is applied, NaN came before",
            command=STOP,
            diff="-loss = BCELoss()(output, target)\n"
            "+loss = BCEWithLogitsLoss()(output, target)   # output without sigmoid\n"
            "+assert torch.isfinite(output).all()   # above the loss: else a NaN of an earlier step is in the weights",
        ),
    ),
    "probability": (
        "probabilities from 0, finite, with a sum above 0",
        Fix(
            "see where the NaN or the infinity comes from: overflow in float16, or weights that are broken already",
            command=STOP,
            diff="+assert torch.isfinite(logits).all()\n probabilities = torch.softmax(logits.float(), dim=-1)",
        ),
    ),
}


@log_pattern(f"{ASSERTION}|{TRIGGERED}", context=(ASSERTION,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield what the failed condition means for the data."""
    said = (record, match) if match[1] else log.first(ASSERTION)
    condition = said[1][1] if said else ""
    meaning = next((words for part, words in MEANINGS if part in condition), "a kernel's check of its input failed")
    expected, fix = next((said for part, said in OTHERWISE.items() if part in condition), (IN_RANGE, RANGES))
    yield Finding(
        f"a GPU kernel stopped: {meaning}",
        (
            *((said[0].proof(said[1], expected),) if said else ()),
            *(() if match[1] else (record.proof(match, "no assertion"),)),
        ),
        fix,
        record.place,
    )
