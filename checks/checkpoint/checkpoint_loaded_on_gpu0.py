"""Every rank loads the checkpoint onto the GPU that it was saved from, mostly GPU 0.

## What happens

`torch.load` without `map_location` puts each tensor back on the device that it was saved from. If rank 0 saved, all
ranks of the node fill GPU 0 with a copy each, beside what rank 0 needs itself. A training that fits when it starts
afresh then ends with "CUDA out of memory" at the resume; or it goes on, and only nvidia-smi shows several processes
on GPU 0.

## How to be sure

The traceback of the error passes through `torch/serialization.py`; or torch lists other processes with memory on this
GPU ("Process 4711 has 9.8 GiB memory in use"), and their pids are those of the other ranks.
`nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv` lists the pids on each GPU.

## How to mend it

Load with `torch.load(path, map_location="cpu")`, and delete the dict after `load_state_dict`.

## Versions and sources

Holds for all versions of torch; the list of processes is printed since 2.1. Source: PyTorch documentation,
"torch.load", and "Saving and Loading Models" for DDP.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from ._memory import FOREIGN, FULL, LOADING, RESUMED, resumed

AILMENT = Ailment("DDP821", Severity.ERROR)


@log_pattern(FULL, supersedes=("cuda-oom",))
def in_torch_load(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise the loading itself by its frame."""
    if frame := re.search(LOADING, record.text):
        yield _finding(record, match, (record.proof(frame, "no allocation on a GPU while a checkpoint is read"),))


@log_pattern(FULL, context=(RESUMED,), supersedes=("cuda-oom",))
def after_a_resume(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Suspect it where other processes hold memory of this GPU shortly after a resume."""
    foreign = re.search(FOREIGN, record.text)
    shown = resumed(record, log)
    if foreign and shown and not re.search(LOADING, record.text):
        ambiguity = Ambiguity(
            (
                "torch.load without map_location on every rank",
                "another job's processes on this GPU",
                "the loaded checkpoint is still held on this GPU (checkpoint-kept-on-gpu)",
            ),
            "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
        )
        yield _finding(record, match, (record.proof(foreign, "no other rank on this GPU"), *shown), ambiguity)


def _finding(
    record: Record, match: re.Match[str], shown: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    return Finding(
        "a checkpoint is loaded onto a GPU, which it fills",
        (record.proof(match, "a checkpoint that is loaded onto the CPU"), *shown),
        Fix(
            "load onto the CPU",
            diff='-ckpt = torch.load(path)\n+ckpt = torch.load(path, map_location="cpu")',
        ),
        record.place,
        ambiguity=ambiguity,
    )
