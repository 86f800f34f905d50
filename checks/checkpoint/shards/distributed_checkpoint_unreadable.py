"""The folder that torch.distributed.checkpoint is to load has no readable `.metadata`.

## What happens

A distributed checkpoint is a folder: files `__0_0.distcp`, one or more of each rank, and a file `.metadata` that tells
which tensor is where. `.metadata` is written by rank 0, last of all. Where it is missing or cut short, each rank fails
with "metadata is None", in older versions of torch with a bare `assert metadata is not None` that hides why it was
not read. The usual reasons: the path is the folder above (`checkpoint-500` in place of
`checkpoint-500/pytorch_model_fsdp_0`), the save was interrupted, the folder is on a disk that the rank's host does not
share, or a copy (`cp *`, a download) left out the file because its name begins with a dot. Megatron-Core looks for its
own `metadata.json` first: "CheckpointingException: ... is not a distributed checkpoint".

## How to be sure

`ls -la FOLDER` on the host of the rank that fails: `.metadata` stands beside the `.distcp` files, and is not empty.

## How to mend it

Name the folder that holds `.metadata`. A save that never wrote it is lost: take the one before. Where only the copy
misses it, copy it again, hidden files included (`rsync -a FOLDER/ TARGET/`).

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch/distributed/checkpoint/state_dict_loader.py, `_load_state_dict`;
torch/distributed/checkpoint/filesystem.py, `finish`; pytorch/pytorch#177739, bghira/SimpleTuner#1880.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1881", Severity.ERROR)
MISSING = r"No such file or directory: '(?P<file>[^'\n]{1,400}\.metadata)'"


@log_pattern(
    r"(?P<bare>assert metadata is not None)"
    r"|AssertionError: metadata is None(?:; global metadata read failed: (?P<why>[^;\n]{1,300}))?",
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the file where a message does."""
    if match["bare"] and "state_dict_loader.py" not in record.text:
        return
    found = re.search(MISSING, match["why"] or "")
    file = found["file"] if found else ""
    yield Finding(
        f"the checkpoint has no {file}, which tells where its tensors are"
        if file
        else "the distributed checkpoint's .metadata, which tells where its tensors are, was not read",
        (record.proof(match, ".metadata beside the .distcp files"),),
        Fix("name the folder that holds .metadata", command=f"ls -la {file.rpartition('/')[0] or 'FOLDER'}"),
        record.place,
        ambiguity=Ambiguity(
            (
                "the path is not the folder that was saved, but one above or below",
                "the save was interrupted before rank 0 wrote .metadata",
                "the folder is not on a file system that all hosts share, or was copied without hidden files",
            ),
            "find . -name .metadata -size +0",
        ),
    )


@log_pattern(
    r"CheckpointingException: (?P<folder>[^\n]{1,400}?) is not a distributed checkpoint|CheckpointingException: "
    r"Checkpoint directory (?P<gone>[^\n]{1,400}?) does not exist"
)
def of_megatron(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Megatron-Core asks for metadata.json of the folder of one iteration."""
    folder = match["folder"] or match["gone"]
    yield Finding(
        f"{folder} is not there on this host"
        if match["gone"]
        else f"{folder} is no checkpoint in Megatron's distributed format: it has no metadata.json",
        (record.proof(match, "the folder of an iteration, with metadata.json"),),
        Fix("name the folder that holds it, on a path that all hosts share", command=f"ls -la {folder}"),
        record.place,
        ambiguity=Ambiguity(
            (
                "the path is the run's folder, or another one than that of an iteration (iter_0000100)",
                "the checkpoint is in Megatron's older format (mp_rank_00/model_optim_rng.pt): --ckpt-format torch",
                "this host does not see it, or the save was interrupted",
            ),
            f"ddpdoctor inspect {folder}",
        ),
    )
