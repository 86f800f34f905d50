"""A shard of a tensor does not fit: its first dimension does not divide by the number of ranks.

## What happens

FSDP and DTensor split a tensor by its first dimension. Where that does not divide by the number of ranks, the last
ranks hold less or nothing, with padding. Where the part in a file was saved under another number of ranks, or with
the padding, code that compares it with a rank's part finds "size mismatch for bias: copying a param with shape
torch.Size([2, 17]) from checkpoint, the shape in current model is torch.Size([1, 17])". The sizes are equal but for
the first dimension, and no key is missing.

## How to be sure

All sizes in the message differ in the first dimension only, and the traceback or the log shows FSDP.

## How to mend it

Load through `torch.distributed.checkpoint`, which splits the tensors anew for the ranks that there are; or load the
full state dict before the model is sharded.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, "torch.distributed.checkpoint" and "fully_shard".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity

from .._reason import Reason, on_refusal
from .._refusal import refusal
from .._sharded import is_sharded

AILMENT = Ailment("DDP825", Severity.ERROR)


@on_refusal(Reason.UNEVEN)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise parts of tensors by the dimension that differs."""
    refused = refusal(record, match, log)
    first, found = refused.shapes[0], is_sharded(record, log)
    yield Finding(
        f"{len(refused.shapes)} tensors are parts of other sizes than the model's: {first.key} has "
        f"[{first.file}] in the checkpoint and [{first.model}] here",
        (
            *refused.evidence,
            Evidence(found[0] if found else "", "whole tensors on both sides, or the same number of ranks", "the log"),
        ),
        Fix(
            "let torch.distributed.checkpoint split the tensors for the ranks there are",
            diff="-model.load_state_dict(torch.load(path))\n"
            "+state = get_model_state_dict(model)\n"
            "+torch.distributed.checkpoint.load(state, checkpoint_id=folder)\n"
            "+set_model_state_dict(model, state)",
        ),
        record.place,
    )
