"""A sharded checkpoint (DCP) is not complete on the host that reads it.

## What happens

torch.distributed.checkpoint writes one file for each rank (`__3_0.distcp`), and rank 0 alone writes `.metadata`, which
every rank reads first. Where the folder is on the local disk of each host, the hosts without rank 0 have no `.metadata`
and the first host lacks the others' shards: "FileNotFoundError: ... '/data/run/checkpoint_5/.metadata'", "...
'__8_0.distcp'". A save that was broken off before its end leaves no `.metadata` either, on any host.

## How to be sure

`ls -la FOLDER` on each host. Files of some ranks here and of others there: the folder is not shared.

## How to mend it

Save to a file system that all hosts share. To rescue a checkpoint that lies apart, copy the files of all hosts into one
folder. A broken save: resume from the one before.

## Versions and sources

Holds for torch 2.2 to 2.13, and what builds on it (accelerate, Lightning, torchtitan). Source:
torch.distributed.checkpoint's filesystem.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP835", Severity.ERROR)
MISSING = (
    r"No such file or directory: '(?P<folder>[^'\n]*?)/?"
    r"(?P<file>\.metadata|__\d+_\d+\.distcp|pytorch_model_fsdp(?:_\d+)?\.bin)'"
)


@log_pattern(MISSING)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report which ranks miss what."""
    ranks = sorted(log.ranks(MISSING))
    who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}" if ranks else "a rank"
    folder = match["folder"] or "."
    yield Finding(
        f"{who} find{'' if len(ranks) > 1 else 's'} no {match['file']} in {folder}",
        (record.proof(match, "all files of the checkpoint, on each host"),),
        Fix(
            "save to a file system that all hosts share; copy what lies apart into one folder",
            command=f"ls -la {folder}   # on each host\nrsync -a HOST:{folder}/ {folder}/",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the folder is on a local disk, and other hosts have the rest",
                "the save was broken off before its end (.metadata is written last)",
                "the path is not that of a checkpoint",
            ),
            f"ls -la {folder}   # on each host",
        ),
    )
