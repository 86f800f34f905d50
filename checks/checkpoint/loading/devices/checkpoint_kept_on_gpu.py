"""The loaded checkpoint is still held on the GPU after load_state_dict.

## What happens

A checkpoint that was loaded onto the GPU takes as much memory as model and optimizer together. As long as a variable
holds it (`ckpt = torch.load(...)` in a function that goes on to train), that memory is not free. A training that fits
when it starts afresh ends with "CUDA out of memory" in the first steps after a resume, on each GPU by itself.

## How to be sure

Print `torch.cuda.memory_allocated()` before the load, after `load_state_dict` and after `del ckpt`.
`nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv` shows no process of another rank on the GPU;
where it shows one, the cause is checkpoint-loaded-on-gpu0. The log alone does not decide it.

## How to mend it

Load with `map_location="cpu"`, and `del ckpt` when everything is loaded.

## Versions and sources

Holds for all versions of torch. Source: PyTorch documentation, "torch.load" and "CUDA semantics, memory management".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ._memory import FOREIGN, FULL, LOADING, RESUMED, resumed

AILMENT = Ailment("DDP822", Severity.ERROR)


@log_pattern(FULL, context=(RESUMED,), supersedes=("cuda-oom",))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Suspect it where a GPU is full shortly after a resume, and no other process is on it."""
    shown = resumed(record, log)
    if not shown or re.search(FOREIGN, record.text) or re.search(LOADING, record.text):
        return
    yield Finding(
        "a GPU is full shortly after a resume",
        (record.proof(match, "as much free memory as without a resume"), *shown),
        Fix(
            "load onto the CPU, and let go of the checkpoint",
            diff="-ckpt = torch.load(path)\n"
            '+ckpt = torch.load(path, map_location="cpu")\n'
            ' model.load_state_dict(ckpt["model"])\n'
            "+del ckpt",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the loaded checkpoint is still held on the GPU",
                "torch.load without map_location on every rank (checkpoint-loaded-on-gpu0)",
                "the training needs more memory than the GPU has (cuda-oom)",
            ),
            "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
        ),
    )
