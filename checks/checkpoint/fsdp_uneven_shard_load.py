"""A shard of a tensor does not fit: its first dimension does not divide by the number of ranks.

FSDP and DTensor split a tensor by its first dimension. Where that does not divide by the number of ranks, the last
ranks hold less or nothing, with padding. Code that compares a rank's part with the part in a file, saved under
another number of ranks or with the padding, finds "size mismatch for bias: copying a param with shape torch.Size([2,
17]) from checkpoint, the shape in current model is torch.Size([1, 17])": equal but for the first dimension, and no
key missing.

How to be sure: all sizes in the message differ in the first dimension only, and the traceback or the log shows FSDP.

How to mend it: load through `torch.distributed.checkpoint`, which splits anew for the ranks there are; or from the
full state dict, before the model is sharded.

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, "torch.distributed.checkpoint" and "fully_shard".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Log, Record

from ._refusal import LOUD, PARTS, refusal
from ._sharded import SHARDED, is_sharded, is_uneven

CARD = Card("DDP825", Severity.ERROR)


@sign(LOUD, beside=(*PARTS, SHARDED))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise parts of tensors by the dimension that differs."""
    refused = refusal(record, match, log)
    found = is_sharded(record, log)
    if found is None or not is_uneven(refused, record, log):
        return
    first = refused.shapes[0]
    yield Finding(
        f"{len(refused.shapes)} tensors are parts of other sizes than the model's: {first.key} has "
        f"[{first.file}] in the checkpoint and [{first.model}] here",
        (*refused.evidence, Evidence(found[0], "whole tensors on both sides, or the same number of ranks", "the log")),
        Fix(
            "let torch.distributed.checkpoint split the tensors for the ranks there are",
            diff="-model.load_state_dict(torch.load(path))\n"
            "+state = get_model_state_dict(model)\n"
            "+torch.distributed.checkpoint.load(state, checkpoint_id=folder)\n"
            "+set_model_state_dict(model, state)",
        ),
        record.place,
    )
