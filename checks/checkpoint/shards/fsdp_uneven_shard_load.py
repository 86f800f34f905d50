"""A tensor does not fit a rank's shard of it: it is whole, or a shard for another number of ranks.

## What happens

FSDP and DTensor split a tensor by its first dimension. Where that does not divide by the number of ranks, the last
ranks hold less or nothing, with padding. Where the part in a file was saved under another number of ranks, or with
the padding, code that compares it with a rank's part finds "size mismatch for bias: copying a param with shape
torch.Size([2, 17]) from checkpoint, the shape in current model is torch.Size([1, 17])". The sizes are equal but for
the first dimension, and no key is missing.

Whole tensors do not fit either: FSDP1 with `use_orig_params=True` leaves each rank a flat part under the parameter's
own name, with size [0] for what other ranks hold. `load_state_dict` of the module within, which is not told to gather,
finds "the shape in current model is torch.Size([65667584])", or [0], beside a matrix in the checkpoint.

## How to be sure

All sizes in the message differ in the first dimension only, and the traceback or the log shows FSDP; or those of the
model have one dimension, some of them [0], where the checkpoint has matrices.

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


@on_refusal(Reason.INTO_FLAT_PARTS)
def whole_ones_into_parts(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the flat parts that FSDP has made of the model's parameters."""
    refused = refusal(record, match, log)
    first = next(shape for shape in refused.shapes if shape.model != "0" and "," in shape.file)
    yield Finding(
        f"whole tensors are loaded into a rank's flat parts of FSDP: {first.key} is [{first.file}] in the checkpoint "
        f"and [{first.model}] here",
        refused.evidence,
        Fix(
            "load before the model is wrapped, or let torch share the whole tensors out, on all ranks",
            diff="-model.load_state_dict(state)\n"
            "+from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict\n"
            "+set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))",
        ),
        record.place,
    )


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
