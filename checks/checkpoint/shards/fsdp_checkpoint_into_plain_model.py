"""A checkpoint that FSDP saved in shards is loaded as if it were one file of a plain model.

## What happens

Lightning's FSDPStrategy with `state_dict_type="sharded"`, and `torch.distributed.checkpoint`, write a folder with the
parts of each rank. `torch.load` and `load_from_checkpoint` want one file: "IsADirectoryError: [Errno 21] Is a
directory: 'last.ckpt'". A file that one rank saved of its own part can be loaded, and the plain model then misses
keys.

## How to be sure

`ls last.ckpt` shows `.metadata` and `__0_0.distcp`. Where it is a file, the log shows FSDP, and the keys of the plain
model are missing with nothing unexpected beside them; `ddpdoctor inspect last.ckpt --keys` lists what the file holds.

## How to mend it

Put the shards together, `python -m lightning.pytorch.utilities.consolidate_checkpoint last.ckpt` or `python -m
torch.distributed.checkpoint.format_utils dcp_to_torch last.ckpt
last.pt`. From now on save with `state_dict_type="full"`.

## Versions and sources

Holds for torch 2.2 to 2.13 and Lightning 2.0 and later. Source: Lightning's FSDPStrategy, and PyTorch documentation,
"torch.distributed.checkpoint".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from .._reason import OTHER_NETWORK, Reason, on_refusal
from .._refusal import refusal

AILMENT = Ailment("DDP823", Severity.ERROR)


@log_pattern(r"IsADirectoryError: \[Errno 21\] Is a directory: '([^'\n]+\.(?:ckpt|pt|pth))'")
def a_folder_in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a folder where a file was meant."""
    yield Finding(
        f"{match[1]} is a folder of shards, and is loaded as one file",
        (record.proof(match, "a file"),),
        _consolidate(match[1]),
        record.place,
    )


@on_refusal(Reason.SHARDS)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Suspect it where a plain model misses keys and the log shows FSDP."""
    refused = refusal(record, match, log)
    yield Finding(
        f"{len(refused.missing)} keys of {refused.model} are not in the checkpoint, and FSDP is used",
        refused.evidence,
        _consolidate(refused.path),
        record.place,
        ambiguity=Ambiguity(
            ("FSDP saved the parts of its ranks, not the whole weights", OTHER_NETWORK),
            f"ddpdoctor inspect {refused.path} --keys",
        ),
    )


def _consolidate(path: str) -> Fix:
    return Fix(
        "put the shards together, and save the full state dict from now on",
        command=f"python -m lightning.pytorch.utilities.consolidate_checkpoint {path}  # Lightning\n"
        f"python -m torch.distributed.checkpoint.format_utils dcp_to_torch {path} whole.pt",
        diff='-FSDPStrategy(state_dict_type="sharded")\n+FSDPStrategy(state_dict_type="full")',
    )
