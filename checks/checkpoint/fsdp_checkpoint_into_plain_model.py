"""A checkpoint that FSDP saved in shards is loaded as if it were one file of a plain model.

Lightning's FSDPStrategy with `state_dict_type="sharded"`, and `torch.distributed.checkpoint`, write a folder with the
parts of each rank. `torch.load` and `load_from_checkpoint` want one file: "IsADirectoryError: [Errno 21] Is a
directory: 'last.ckpt'". A file that one rank saved of its own part loads, and the plain model then misses keys.

How to be sure: `ls last.ckpt` shows `.metadata` and `__0_0.distcp`; or the log shows FSDP, and the keys of the plain
model are missing with nothing unexpected beside them.

How to mend it: put the shards together, `python -m lightning.pytorch.utilities.consolidate_checkpoint last.ckpt` or
`python -m torch.distributed.checkpoint.format_utils dcp_to_torch last.ckpt last.pt`; from now on save with
`state_dict_type="full"`.

Holds for torch 2.2 to 2.13 and Lightning 2.0 and later. Source: Lightning's FSDPStrategy, and PyTorch documentation,
"torch.distributed.checkpoint".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Finding, Fix, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

from ._reason import OTHER_NETWORK, Reason, reason
from ._refusal import LOUD, PARTS, refusal
from ._sharded import SHARDED, is_sharded

CARD = Card("DDP823", Severity.ERROR)


@sign(r"IsADirectoryError: \[Errno 21\] Is a directory: '([^'\n]+\.(?:ckpt|pt|pth))'")
def a_folder_in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a folder where a file was meant."""
    yield Finding(
        f"{match[1]} is a folder of shards, and is loaded as one file",
        (record.proof(match, "a file"),),
        _consolidate(match[1]),
        record.place,
    )


@sign(LOUD, role=Role.SYMPTOM, beside=(*PARTS, SHARDED))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Suspect it where a plain model misses keys and the log shows FSDP."""
    refused = refusal(record, match, log)
    why = reason(refused)[0]
    if why is not Reason.ONLY_MISSING or refused.wrapped or not is_sharded(record, log):
        return
    yield Finding(
        f"{len(refused.missing)} keys of {refused.model} are not in the checkpoint, and FSDP is used",
        refused.evidence,
        _consolidate(refused.path),
        record.place,
        doubt=Doubt(
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
